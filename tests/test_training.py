"""The ways to train: fit and its modes, train_on_batch, and loops of one's own."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from twins import Twins, exported, slices, small_model

import tf_hps
from tf_hps.anchor import anchor_of

DATA = np.random.default_rng(0).integers(0, 12, [24, 4]), np.linspace(0, 1, 24)[:, np.newaxis]


def trained(train):
    """Rows and losses of the same small model after `train(model)`."""
    tf_keras.utils.set_random_seed(0)
    layer = tf_hps.HPSEmbedding(12, 3, name="embedding")
    model = small_model(layer)
    losses = train(model)
    assert model.optimizer.iterations == 12
    return exported(layer.table), losses


def by_fit(**compile_args):
    def train(model):
        optimizer = tf_hps.HPSOptimizer(tf_keras.optimizers.Adagrad(0.1))
        model.compile(optimizer, "mse", **compile_args)
        history = model.fit(*DATA, batch_size=4, epochs=2, shuffle=False, verbose=0)
        return history.history["loss"]

    return train


def by_dataset(model):
    model.compile(tf_hps.HPSOptimizer(tf_keras.optimizers.Adagrad(0.1)), "mse")
    dataset = tf.data.Dataset.from_tensor_slices(DATA).batch(4).prefetch(2)
    return model.fit(dataset, epochs=2, verbose=0).history["loss"]


def by_train_on_batch(model):
    model.compile(tf_hps.HPSOptimizer(tf_keras.optimizers.Adagrad(0.1)), "mse")
    epochs = [[model.train_on_batch(*batch) for batch in batches()] for _ in range(2)]
    return np.mean(epochs, 1)


def batches():
    return [(DATA[0][i : i + 4], DATA[1][i : i + 4]) for i in range(0, 24, 4)]


def by_own_loop(wrap):
    def train(model):
        model.optimizer = tf_hps.HPSOptimizer(tf_keras.optimizers.Adagrad(0.1))

        @wrap
        def step(ids, targets):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(ids, training=True) - targets) ** 2)
            gradients = tape.gradient(loss, model.trainable_variables)
            model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        epochs = [
            [step(tf.constant(ids), tf.constant(y, tf.float32)) for ids, y in batches()]
            for _ in range(2)
        ]
        return np.mean(epochs, 1)

    return train


def by_minimize(model):
    model.optimizer = tf_hps.HPSOptimizer(tf_keras.optimizers.Adagrad(0.1))
    losses = []
    for ids, targets in batches() * 2:

        def loss(ids=ids, targets=targets):
            value = tf.reduce_mean(
                (model(ids, training=True) - tf.constant(targets, "float32")) ** 2
            )
            losses.append(value.numpy())
            return value

        model.optimizer.minimize(loss, model.trainable_variables)
    return np.mean(np.reshape(losses, [2, -1]), 1)


WAYS = {
    "run_eagerly": by_fit(run_eagerly=True),
    "steps_per_execution": by_fit(steps_per_execution=3),
    "steps_per_execution that do not divide the epoch": by_fit(steps_per_execution=4),
    "dataset": by_dataset,
    "train_on_batch": by_train_on_batch,
    "own eager loop": by_own_loop(lambda step: step),
    "own loop in tf.function": by_own_loop(tf.function),
    "minimize": by_minimize,
}


@pytest.mark.parametrize("way", WAYS)
def test_all_ways_of_training_are_one(way):
    expected_rows, expected_losses = trained(by_fit())
    rows, losses = trained(WAYS[way])
    assert rows.keys() == expected_rows.keys()
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-6)
    np.testing.assert_allclose(
        list(rows.values()), list(expected_rows.values()), rtol=1e-5, atol=1e-7
    )


def test_evaluation_changes_nothing():
    layer = tf_hps.HPSEmbedding(None, 3)
    model = small_model(layer)
    model.compile(tf_hps.HPSOptimizer("adam"), "mse")
    model.fit(*DATA, verbose=0)
    before = exported(layer.table)
    unseen = DATA[0] + 100, DATA[1]
    model.evaluate(*unseen, verbose=0)
    model.predict(unseen[0], verbose=0)
    model.test_on_batch(*unseen)
    after = exported(layer.table)
    assert before.keys() == after.keys()
    np.testing.assert_array_equal(list(after.values()), list(before.values()))


def test_a_partial_and_an_empty_last_batch():
    twins = Twins(lambda: tf_keras.optimizers.SGD(0.1, momentum=0.9), run_eagerly=False)
    ids, targets = twins.batch(size=10)
    for model in (twins.dense, twins.tiered):
        model.fit(ids, targets, batch_size=4, shuffle=False, verbose=0)
    twins.check_equal()
    for model in (twins.dense, twins.tiered):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(np.zeros([0, 4], np.int64), training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    twins.check_equal()  # the rows moved with their momentum
    assert twins.tiered.optimizer.iterations == 4


def test_duplicates_in_one_batch_are_summed():
    layer = tf_hps.HPSEmbedding(None, 2, "ones")
    optimizer = tf_hps.HPSOptimizer(tf_keras.optimizers.SGD(1.0))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(tf.constant([7, 8, 7, 7]), training=True) * [[1], [2], [3], [4]])
    optimizer.minimize(loss, layer.trainable_variables, tape)
    rows = exported(layer.table)
    assert (rows[7].tolist(), rows[8].tolist()) == ([-7, -7], [-1, -1])


def test_gradients_in_several_entries_of_one_table_are_summed():
    """Adagrad would see two updates otherwise."""
    tables = [tf_hps.Table(f"entries{i}", 1, initializer="zeros") for i in range(2)]
    entries = [slices([[1], [2]], [5, 6]), slices([[3]], [5])], [slices([[1], [2], [3]], [5, 6, 5])]
    for table, gradients in zip(tables, entries, strict=True):
        optimizer = tf_hps.HPSOptimizer(tf_keras.optimizers.Adagrad(0.1))
        optimizer.apply_gradients([(gradient, anchor_of(table)) for gradient in gradients])
    assert exported(tables[0]) == exported(tables[1]) and exported(tables[0])[5] < 0


def test_lookups_in_inference_mode_can_be_trained():
    """As when fine-tuning with model(x, training=False): unseen rows come with their update."""
    layer = tf_hps.HPSEmbedding(None, 2, "ones")
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(tf.constant([3])))
    optimizer = tf_hps.HPSOptimizer(tf_keras.optimizers.SGD(0.5))
    optimizer.minimize(loss, layer.trainable_variables, tape)
    assert exported(layer.table)[3].tolist() == [0.5, 0.5]


def test_a_table_without_a_gradient_stays():
    used, unused = tf_hps.HPSEmbedding(None, 2), tf_hps.HPSEmbedding(None, 2)
    unused.build()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(used(tf.constant([1]), training=True))
    variables = used.trainable_variables + unused.trainable_variables
    gradients = tape.gradient(loss, variables)
    assert gradients[1] is None
    tf_hps.HPSOptimizer("sgd").apply_gradients(zip(gradients, variables, strict=True))
    assert (used.table.size(), unused.table.size()) == (1, 0)


def test_gradients_can_be_taken_apart_and_accumulated():
    """Two half batches, their slices concatenated, are one step on the whole batch."""
    layers = [tf_hps.HPSEmbedding(None, 2, "ones") for _ in range(2)]
    whole, halves = tf.constant([1, 2, 2, 3]), (tf.constant([1, 2]), tf.constant([2, 3]))
    for layer, parts in zip(layers, ([whole], halves), strict=True):
        gradients = []
        for ids in parts:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(layer(ids, training=True) ** 2)
            gradients += tape.gradient(loss, layer.trainable_variables)
        gradient = tf.IndexedSlices(
            tf.concat([part.values for part in gradients], 0),
            tf.concat([part.indices for part in gradients], 0),
        )
        optimizer = tf_hps.HPSOptimizer(tf_keras.optimizers.Adagrad(0.1))
        optimizer.apply_gradients([(gradient, layer.trainable_variables[0])])
    rows = [list(exported(layer.table).values()) for layer in layers]
    np.testing.assert_array_equal(rows[0], rows[1])


def test_persistent_and_nested_tapes():
    layer = tf_hps.HPSEmbedding(None, 2, "ones")
    ids = tf.constant([1])
    with tf.GradientTape(persistent=True) as outer:
        scale = tf.constant(3.0)
        outer.watch(scale)
        with tf.GradientTape() as inner:
            loss = scale * tf.reduce_sum(layer(ids) ** 2)
        gradient = inner.gradient(loss, layer.trainable_variables)[0]
    np.testing.assert_array_equal(gradient.values, [[6, 6]])
    assert outer.gradient(gradient.values, scale) == 4.0


def test_two_models_in_turn_on_one_table():
    """As with a GAN's two optimizers: each step is applied by the optimizer that took it."""
    layer = tf_hps.HPSEmbedding(None, 2, "ones")
    optimizers = [tf_hps.HPSOptimizer(tf_keras.optimizers.SGD(rate)) for rate in (0.5, 0.25)]
    for optimizer in optimizers:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(tf.constant([1]), training=True))
        optimizer.minimize(loss, layer.trainable_variables, tape)
    assert exported(layer.table)[1].tolist() == [0.25, 0.25]


def test_optimizer_config_round_trip():
    schedule = tf_keras.optimizers.schedules.CosineDecay(0.1, 10)
    inner = tf_keras.optimizers.Adam(schedule, 0.8, global_clipnorm=1.0, adaptive_epsilon=True)
    optimizer = tf_hps.HPSOptimizer(inner, non_finite="skip")
    copy = tf_keras.optimizers.deserialize(tf_keras.optimizers.serialize(optimizer))
    assert type(copy) is tf_hps.HPSOptimizer and type(copy.inner) is tf_keras.optimizers.Adam
    assert copy.get_config() == optimizer.get_config()
    assert copy.inner.adaptive_epsilon and copy.global_clipnorm == 1.0
    assert tf_keras.optimizers.get(optimizer) is optimizer


def test_loss_scaling_around_can_be_serialized():
    optimizer = tf_keras.mixed_precision.LossScaleOptimizer(tf_hps.HPSOptimizer("adam"))
    copy = tf_keras.optimizers.deserialize(tf_keras.optimizers.serialize(optimizer))
    assert type(copy.inner_optimizer) is tf_hps.HPSOptimizer


def test_clipping_of_the_wrapper_is_the_inner_optimizer_s():
    optimizer = tf_hps.HPSOptimizer(tf_keras.optimizers.SGD(1.0))
    optimizer.clipvalue = 0.25
    assert optimizer.inner.clipvalue == 0.25
    table = tf_hps.Table("clipped", 1, initializer="zeros")
    layer = tf_hps.HPSEmbedding(None, 1, table=table)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(tf.constant([1]), training=True))
    optimizer.minimize(loss, layer.trainable_variables, tape)
    assert exported(table)[1] == -0.25
