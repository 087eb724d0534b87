"""HPSOptimizer trains tables as tf_keras trains the matrix of a dense Embedding."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from twins import LAZY, OPTIMIZERS, Twins, exported, small_model

import tf_hps
from tf_hps.anchor import anchor_of

CLIPPING = {
    "unclipped": {},
    "clipnorm": {"clipnorm": 0.02},
    "clipvalue": {"clipvalue": 0.002},
    "global_clipnorm": {"global_clipnorm": 0.03},
}


@pytest.mark.parametrize("clipping", CLIPPING)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_equals_dense_at_every_step(name, clipping):
    twins = Twins(lambda: OPTIMIZERS[name](**CLIPPING[clipping]))
    # Adam divides by the root of v: where that is tiny, rounding in the last bit shows.
    twins.train_and_check(every_row=name in LAZY, atol=2e-6 if name in LAZY else 2e-7)


@pytest.mark.parametrize("clipping", [name for name in CLIPPING if name != "unclipped"])
def test_clipping_of_the_parity_tests_is_active(clipping):
    rows = []
    for kwargs in ({}, CLIPPING[clipping]):
        twins = Twins(lambda kwargs=kwargs: OPTIMIZERS["sgd"](**kwargs))
        before = exported(twins.layer.table)
        ids, targets = twins.batch()
        twins.step(ids, targets)
        key = int(ids[0, 0])
        rows.append(np.abs(exported(twins.layer.table)[key] - before[key]).max())
    assert 0 < rows[1] < 0.9 * rows[0]


@pytest.mark.parametrize("dim", [1, 3, 16, 33])
def test_any_dim_equals_dense(dim):
    Twins(OPTIMIZERS["adagrad"], dim=dim).train_and_check(steps=4)


@pytest.mark.parametrize("name", ["momentum", "nesterov"])
def test_untouched_rows_move_with_momentum(name):
    twins = Twins(OPTIMIZERS[name], vocabulary=30)
    twins.step(*twins.batch(every_row=True))
    before = exported(twins.layer.table)
    for _ in range(5):
        ids, targets = twins.batch()
        twins.step(ids, targets)
        assert 29 not in ids
        twins.check_equal()
    assert np.abs(exported(twins.layer.table)[29] - before[29]).max() > 1e-5


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("adaptive_epsilon", [False, True])
def test_adam_is_lazy_on_tables(amsgrad, adaptive_epsilon):
    """Against NumPy: moments of a row decay, and its weights move, in its own steps only."""
    inner = tf_keras.optimizers.Adam(
        0.02, 0.8, 0.95, 1e-3, amsgrad=amsgrad, adaptive_epsilon=adaptive_epsilon
    )
    optimizer = tf_hps.HPSOptimizer(inner)
    table = tf_hps.Table(f"lazy_{amsgrad}_{adaptive_epsilon}", 3, initializer="ones")
    random = np.random.default_rng(0)
    weights, m, v, v_hat = (np.full([10, 3], x, np.float64) for x in (1, 0, 0, 0))
    for t in range(1, 9):
        keys = random.integers(0, 10, 6)
        gradients = random.normal(size=[6, 3]).astype(np.float32)
        _apply(optimizer, table, gradients, keys)
        for key in set(keys.tolist()):
            g = gradients[keys == key].sum(0)
            m[key] += (g - m[key]) * (1 - 0.8)
            v[key] += (g * g - v[key]) * (1 - 0.95)
            v_hat[key] = np.maximum(v_hat[key], v[key])
            alpha = 0.02 * np.sqrt(1 - 0.95**t) / (1 - 0.8**t)
            epsilon = 1e-3 * (np.sqrt(1 - 0.95**t) if adaptive_epsilon else 1)
            weights[key] -= alpha * m[key] / (np.sqrt((v_hat if amsgrad else v)[key]) + epsilon)
        for key, row in exported(table).items():
            np.testing.assert_allclose(row, weights[key], rtol=1e-5, atol=1e-6)


def _apply(optimizer, table, gradients, keys):
    gradient = tf.IndexedSlices(tf.constant(gradients), tf.constant(keys, tf.int64))
    optimizer.apply_gradients([(gradient, anchor_of(table))])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_learning_rate_schedule(name):
    def optimizer():
        result = OPTIMIZERS[name]()
        schedule = tf_keras.optimizers.schedules.ExponentialDecay(0.05, 2, 0.5)
        return type(result).from_config(result.get_config() | {"learning_rate": schedule})

    twins = Twins(optimizer)
    twins.train_and_check(steps=6, every_row=name in LAZY, atol=2e-6)
    assert twins.tiered.optimizer.learning_rate < 0.05 / 4


def test_learning_rate_can_be_assigned():
    twins = Twins(OPTIMIZERS["sgd"])
    twins.train_and_check(steps=2)
    for model in (twins.dense, twins.tiered):
        model.optimizer.learning_rate = 0.02
        tf_keras.backend.set_value(model.optimizer.lr, 0.03)
    assert twins.tiered.optimizer.inner.learning_rate == np.float32(0.03)
    twins.step(*twins.batch())
    twins.check_equal()


@pytest.mark.parametrize("callback", ["plateau", "scheduler"])
def test_learning_rate_callbacks(callback):
    twins = Twins(OPTIMIZERS["sgd"])
    data = twins.batch(size=16)
    for model in (twins.dense, twins.tiered):
        callbacks = {
            "plateau": tf_keras.callbacks.ReduceLROnPlateau("loss", 0.5, patience=0, min_delta=9.0),
            "scheduler": tf_keras.callbacks.LearningRateScheduler(
                lambda epoch, lr: lr / (1 + epoch)
            ),
        }
        model.fit(
            *data, batch_size=4, epochs=3, shuffle=False, verbose=0, callbacks=[callbacks[callback]]
        )
    assert twins.tiered.optimizer.learning_rate < 0.1
    twins.check_equal(rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dynamic", [True, False])
def test_loss_scaling_around(dynamic):
    arguments = {"dynamic": dynamic, "initial_scale": 1024.0}

    def scaled(optimizer):
        return tf_keras.mixed_precision.LossScaleOptimizer(optimizer, **arguments)

    twins = Twins(OPTIMIZERS["adagrad"], wrap=lambda inner: scaled(tf_hps.HPSOptimizer(inner)))
    twins.dense.compile(scaled(OPTIMIZERS["adagrad"]()), "mse")
    twins.train_and_check(steps=5)


def test_loss_scaling_skips_steps_that_are_not_finite():
    def scaled(optimizer):
        return tf_keras.mixed_precision.LossScaleOptimizer(optimizer, initial_scale=64.0)

    twins = Twins(OPTIMIZERS["momentum"], wrap=lambda inner: scaled(tf_hps.HPSOptimizer(inner)))
    twins.dense.compile(scaled(OPTIMIZERS["momentum"]()), "mse")
    twins.train_and_check(steps=2)
    before = exported(twins.layer.table)
    ids, targets = twins.batch()
    twins.step(ids, np.full_like(targets, np.inf))
    np.testing.assert_array_equal(list(before.values()), list(exported(twins.layer.table).values()))
    twins.check_equal()
    assert twins.tiered.optimizer.loss_scale == 32.0
    assert twins.tiered.optimizer.iterations == 3 == twins.dense.optimizer.iterations
    twins.step(*twins.batch())
    twins.check_equal()
    assert not np.array_equal(list(before.values()), list(exported(twins.layer.table).values()))


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision(policy):
    tf_keras.mixed_precision.set_global_policy(policy)
    try:
        twins = Twins(OPTIMIZERS["sgd"])
        assert twins.tiered(twins.batch()[0]).dtype == policy.removeprefix("mixed_")
        assert twins.layer(np.array([1])).dtype == policy.removeprefix("mixed_")
        for _ in range(5):
            twins.step(*twins.batch())
        twins.check_equal(rtol=1e-3, atol=1e-4)
        assert twins.layer.table.lookup([1]).dtype == tf.float32
    finally:
        tf_keras.mixed_precision.set_global_policy("float32")


def _shared(embedding, calls):
    """A model that uses one embedding for two inputs."""
    inputs = [tf_keras.Input([3], dtype="int32") for _ in calls]
    rows = [call(ids) for call, ids in zip(calls, inputs, strict=True)]
    features = tf_keras.layers.Flatten()(rows[0] * rows[1])
    output = tf_keras.layers.Dense(1, kernel_initializer="ones")(features)
    return tf_keras.Model(inputs, output), embedding


@pytest.mark.parametrize("sharing", ["one layer twice", "two layers of one table"])
@pytest.mark.parametrize("clipping", CLIPPING)
def test_shared_embedding(sharing, clipping):
    embedding = tf_keras.layers.Embedding(20, 4)
    dense, _ = _shared(embedding, [embedding, embedding])
    table = tf_hps.Table(f"{sharing} {clipping}", 4)
    table.upsert(np.arange(20), embedding.get_weights()[0])
    layers = [tf_hps.HPSEmbedding(20, 4, table=table) for _ in range(2)]
    if sharing == "one layer twice":
        layers = [layers[0], layers[0]]
    tiered, _ = _shared(layers[0], layers)
    assert len(tiered.trainable_weights) == 3
    dense.compile(OPTIMIZERS["adagrad"](**CLIPPING[clipping]), "mse")
    tiered.compile(tf_hps.HPSOptimizer(OPTIMIZERS["adagrad"](**CLIPPING[clipping])), "mse")
    random = np.random.default_rng(1)
    for _ in range(6):
        data = [random.integers(0, 20, [5, 3]) for _ in range(2)], random.uniform(size=[5, 1])
        np.testing.assert_allclose(
            tiered.train_on_batch(*data), dense.train_on_batch(*data), rtol=1e-5
        )
        np.testing.assert_allclose(
            list(exported(table).values()), embedding.get_weights()[0], rtol=1e-5, atol=1e-6
        )


def test_tables_of_several_widths_are_clipped_together():
    """global_clipnorm is over all tables and dense weights."""
    ids = tf_keras.Input([4], dtype="int64")
    models, embeddings = [], []
    for make in (tf_keras.layers.Embedding, tf_hps.HPSEmbedding):
        parts = [make(10, 2, name="narrow"), make(10, 7, name="wide")]
        features = tf_keras.layers.Concatenate()([part(ids) for part in parts])
        output = tf_keras.layers.Dense(1, kernel_initializer="ones")(features)
        models.append(tf_keras.Model(ids, tf_keras.layers.Flatten()(output)))
        embeddings.append(parts)
    for dense, tiered in zip(*embeddings, strict=True):
        tiered.table.upsert(np.arange(10), dense.get_weights()[0])
    wraps = (lambda optimizer: optimizer, tf_hps.HPSOptimizer)
    for model, wrap in zip(models, wraps, strict=True):
        model.compile(wrap(tf_keras.optimizers.SGD(0.1, global_clipnorm=0.05)), "mse")
    for step in range(4):
        data = np.random.default_rng(step).integers(0, 10, [6, 4]), np.ones([6, 4])
        losses = [model.train_on_batch(*data) for model in models]
        np.testing.assert_allclose(losses[1], losses[0], rtol=1e-6)
    for dense, tiered in zip(*embeddings, strict=True):
        np.testing.assert_allclose(
            list(exported(tiered.table).values()), dense.get_weights()[0], rtol=1e-6, atol=1e-7
        )


def test_a_model_without_tables_trains_as_with_the_inner_optimizer():
    models = []
    for wrap in (lambda optimizer: optimizer, tf_hps.HPSOptimizer):
        tf_keras.utils.set_random_seed(0)
        model = small_model(tf_keras.layers.Embedding(9, 3))
        model.compile(wrap(tf_keras.optimizers.Adam(0.01, global_clipnorm=0.1)), "mse")
        model.fit(np.ones([8, 4]), np.ones([8, 1]), epochs=3, verbose=0, shuffle=False)
        models.append(model)
    for expected, weight in zip(models[0].get_weights(), models[1].get_weights(), strict=True):
        np.testing.assert_array_equal(weight, expected)
    for expected, weight in zip(
        models[0].optimizer.variables, models[1].optimizer.variables, strict=True
    ):
        np.testing.assert_array_equal(weight, expected)


def test_a_model_of_tables_only_counts_iterations():
    layer = tf_hps.HPSEmbedding(None, 3, embeddings_initializer="ones")
    model = tf_keras.Sequential([layer, tf_keras.layers.Flatten()])
    model.compile(tf_hps.HPSOptimizer(tf_keras.optimizers.Adam(0.1)), "mse")
    model.fit(np.array([[5], [6]]), np.zeros([2, 3]), batch_size=1, epochs=2, verbose=0)
    assert model.optimizer.iterations == 4
    assert set(exported(layer.table)) == {5, 6}
    assert np.all(exported(layer.table)[5] < 1)


def test_constraints_of_dense_weights_are_applied():
    layer = tf_hps.HPSEmbedding(10, 3, input_length=1)
    dense = tf_keras.layers.Dense(1, kernel_constraint=tf_keras.constraints.NonNeg())
    model = tf_keras.Sequential([layer, tf_keras.layers.Flatten(), dense])
    model.compile(tf_hps.HPSOptimizer(tf_keras.optimizers.SGD(5.0)), "mse")
    model.fit(np.arange(8).reshape(8, 1), np.full([8, 1], -3.0), epochs=3, verbose=0)
    assert np.all(dense.kernel >= 0) and np.any(dense.kernel == 0)
