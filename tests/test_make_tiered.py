"""make_tiered: an existing model, its weights and its compile state, with tables."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from twins import exported

import tf_hps

K = tf_keras.layers


def sequential(**compile_args):
    model = tf_keras.Sequential(
        [K.Embedding(50, 4, input_length=3, name="words"), K.Flatten(), K.Dropout(0.5), K.Dense(1)]
    )
    model.compile(**({"optimizer": "adagrad", "loss": "mse"} | compile_args))
    return model


def functional():
    """Two inputs, a shared embedding, one that is too small, batch normalisation, two outputs."""
    user, words = tf_keras.Input([], dtype="int64", name="u"), tf_keras.Input([3], name="w")
    shared = K.Embedding(60, 4, name="user")
    features = [shared(user), K.Flatten()(shared(words)), K.Embedding(7, 2, name="small")(user)]
    hidden = K.BatchNormalization()(K.Dense(8, "relu")(K.Concatenate()(features)))
    outputs = [K.Dense(1, name="click")(hidden), K.Dense(2, name="rating")(hidden)]
    return tf_keras.Model([user, words], outputs, name="ctr")


def functional_batch(size=8, seed=0):
    random = np.random.default_rng(seed)
    inputs = {"u": random.integers(0, 7, size), "w": random.integers(0, 60, [size, 3])}
    targets = {"click": random.uniform(size=[size, 1]), "rating": random.uniform(size=[size, 2])}
    return inputs, targets


def check_same_outputs(model, tiered, inputs):
    expected, outputs = model.predict(inputs, verbose=0), tiered.predict(inputs, verbose=0)
    for pair in zip(tf.nest.flatten(outputs), tf.nest.flatten(expected), strict=True):
        np.testing.assert_array_equal(*pair)


def test_sequential():
    model = sequential()
    tiered = tf_hps.make_tiered(model)
    assert type(tiered) is tf_keras.Sequential and type(tiered.layers[0]) is tf_hps.HPSEmbedding
    check_same_outputs(model, tiered, np.arange(30).reshape(10, 3))
    rows = exported(tiered.layers[0].table)
    np.testing.assert_array_equal(list(rows.values()), model.layers[0].get_weights()[0])
    assert [layer.name for layer in tiered.layers] == [layer.name for layer in model.layers]


def test_functional():
    model = functional()
    inputs, targets = functional_batch()
    model.compile("adagrad", "mse")
    model.fit(inputs, targets, epochs=3, verbose=0)
    tiered = tf_hps.make_tiered(model, min_rows=10)
    kinds = [type(tiered.get_layer(name)) for name in ("user", "small")]
    assert kinds == [tf_hps.HPSEmbedding, K.Embedding]
    assert (tiered.name, tiered.input_names, tiered.output_names) == (
        ("ctr", ["u", "w"], ["click", "rating"])
    )
    check_same_outputs(model, tiered, inputs)


def test_the_copy_trains_as_the_original():
    model = functional()
    model.compile(
        tf_keras.optimizers.SGD(0.1, global_clipnorm=0.5),
        {"click": "mse", "rating": tf_keras.losses.MeanAbsoluteError()},
        metrics={"click": "mae"},
        loss_weights={"click": 1.0, "rating": 0.3},
    )
    tiered = tf_hps.make_tiered(model)
    for seed in range(4):
        inputs, targets = functional_batch(seed=seed)
        expected = model.train_on_batch(inputs, targets)
        np.testing.assert_allclose(tiered.train_on_batch(inputs, targets), expected, rtol=1e-5)
    check_close = np.testing.assert_allclose
    rows = list(exported(tiered.get_layer("user").table).values())
    check_close(rows, model.get_layer("user").get_weights()[0], rtol=1e-5, atol=1e-6)


def test_the_original_is_not_trained_with_the_copy():
    model = sequential()
    weights = model.get_weights()
    tiered = tf_hps.make_tiered(model)
    tiered.fit(np.arange(30).reshape(10, 3), np.ones([10, 1]), verbose=0)
    for weight, before in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(weight, before)
    assert model.optimizer.iterations == 0 and tiered.optimizer.iterations == 1


def test_compile_state_is_kept():
    auc = tf_keras.metrics.AUC(num_thresholds=50, name="auc")
    model = sequential(
        optimizer=tf_keras.optimizers.Adam(0.01, 0.8, clipnorm=2.0, adaptive_epsilon=True),
        loss=tf_keras.losses.BinaryCrossentropy(from_logits=True),
        metrics=["mae", auc],
        weighted_metrics=["mse"],
        steps_per_execution=2,
        run_eagerly=False,
    )
    model.optimizer.learning_rate = 0.02
    tiered = tf_hps.make_tiered(model)
    optimizer = tiered.optimizer
    assert type(optimizer) is tf_hps.HPSOptimizer and optimizer.inner is not model.optimizer
    assert optimizer.inner.get_config() == model.optimizer.get_config()
    assert optimizer.inner.adaptive_epsilon and optimizer.learning_rate == np.float32(0.02)
    data = np.arange(30).reshape(10, 3), np.arange(10).reshape(10, 1) % 2
    logs = [m.fit(*data, verbose=0, batch_size=5).history for m in (model, tiered)]
    assert logs[0].keys() == logs[1].keys() == {"loss", "mae", "auc", "mse"}
    assert tiered._steps_per_execution == 2 and tiered.loss is model.loss
    assert all(metric is not auc for metric in tiered.metrics)


def test_a_model_that_is_not_compiled():
    model = tf_keras.Sequential([K.Embedding(9, 2, input_length=1)])
    assert not tf_hps.make_tiered(model)._is_compiled


def test_loss_scaling_is_kept():
    scaled = tf_keras.mixed_precision.LossScaleOptimizer(
        tf_keras.optimizers.SGD(0.2), initial_scale=256.0, dynamic_growth_steps=7
    )
    tiered = tf_hps.make_tiered(sequential(optimizer=scaled))
    assert type(tiered.optimizer.inner_optimizer) is tf_hps.HPSOptimizer
    assert tiered.optimizer.get_config()["initial_scale"] == 256.0
    assert tiered.optimizer.dynamic_growth_steps == 7
    tiered.fit(np.arange(30).reshape(10, 3), np.ones([10, 1]), verbose=0)


def test_mixed_precision_is_kept():
    tf_keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        model = sequential()
    finally:
        tf_keras.mixed_precision.set_global_policy("float32")
    tiered = tf_hps.make_tiered(model)
    assert tiered.layers[0].compute_dtype == "float16"
    check_same_outputs(model, tiered, np.arange(30).reshape(10, 3))


def test_nested_models():
    inner = functional()
    tower = tf_keras.Sequential([K.Embedding(40, 2, name="words"), K.GlobalAveragePooling1D()])
    user, words = tf_keras.Input([], dtype="int64", name="u"), tf_keras.Input([3], name="w")
    click, _ = inner([user, words])
    model = tf_keras.Model([user, words], K.Add()([click, K.Dense(1)(tower(words))]))
    inputs, _ = functional_batch()
    inputs["w"] %= 40
    tiered = tf_hps.make_tiered(model)
    check_same_outputs(model, tiered, inputs)
    found = [m for m in tiered.submodules if isinstance(m, tf_hps.HPSEmbedding)]
    assert sorted(m.input_dim for m in found) == [7, 40, 60]
    assert not [m for m in tiered.submodules if isinstance(m, K.Embedding)]


def test_a_layer_in_two_models_stays_one():
    words = tf_keras.Input([3], dtype="int64")
    embedding = K.Embedding(40, 2)
    tower = tf_keras.Sequential([embedding, K.GlobalAveragePooling1D()])
    model = tf_keras.Model(words, K.Dense(1)(K.Add()([tower(words), embedding(words)[:, 0]])))
    tiered = tf_hps.make_tiered(model)
    found = [m for m in tiered.submodules if isinstance(m, tf_hps.HPSEmbedding)]
    assert len(set(map(id, found))) == 1
    check_same_outputs(model, tiered, np.arange(6).reshape(2, 3))


@pytest.mark.parametrize("batch", [None, np.arange(6).reshape(2, 3)])
def test_sequential_without_a_declared_input(batch):
    """Built by its first batch, or not at all yet."""
    model = tf_keras.Sequential(
        [K.Lambda(lambda x: x, name="same"), K.Embedding(40, 2), K.Dense(1)]
    )
    if batch is not None:
        model(batch)
    tiered = tf_hps.make_tiered(model)
    assert type(tiered.layers[1]) is tf_hps.HPSEmbedding
    ids = np.arange(6).reshape(2, 3)
    if batch is not None:
        check_same_outputs(model, tiered, ids)
    assert tiered.predict(ids, verbose=0).shape == (2, 3, 1)


def test_rows_are_copied_in_chunks(monkeypatch):
    monkeypatch.setattr(tf_hps.tiering, "_CHUNK_ROWS", 7)
    model = sequential()
    tiered = tf_hps.make_tiered(model)
    rows = exported(tiered.layers[0].table)
    np.testing.assert_array_equal(list(rows.values()), model.layers[0].get_weights()[0])


def test_store(tmp_path):
    with tf_hps.Store(tmp_path / "store") as store:
        tiered = tf_hps.make_tiered(sequential(), store=store)
        assert tiered.layers[0].table.store is store
        assert list(store.tables) == ["words"] and store.tables["words"].size() == 50


def test_masks_and_input_length_are_kept():
    model = tf_keras.Sequential([K.Embedding(9, 2, mask_zero=True, input_length=3), K.LSTM(2)])
    tiered = tf_hps.make_tiered(model)
    assert tiered.layers[0].mask_zero and tiered.layers[0].input_length == 3
    check_same_outputs(model, tiered, np.array([[3, 4, 0], [5, 0, 0]]))


@pytest.mark.parametrize("initializer", ["orthogonal", "pretrained", "he_normal"])
def test_any_initializer_of_a_built_layer(initializer):
    if initializer == "pretrained":
        initializer = tf_keras.initializers.Constant(np.arange(18).reshape(9, 2))
    model = tf_keras.Sequential([K.Embedding(9, 2, initializer, input_length=3)])
    check_same_outputs(model, tf_hps.make_tiered(model), np.arange(9).reshape(3, 3))


def test_frozen_layers_stay_frozen():
    model = sequential()
    model.layers[0].trainable = False
    assert not tf_hps.make_tiered(model).layers[0].trainable


def test_tables_that_are_there_already_are_shared():
    layer = tf_hps.HPSEmbedding(None, 4, input_length=3)
    model = tf_keras.Sequential([layer, K.Flatten(), K.Dense(1)])
    model.compile(tf_hps.HPSOptimizer("adam", non_finite="skip"), "mse")
    tiered = tf_hps.make_tiered(model)
    assert tiered.layers[0].table is layer.table
    assert tiered.optimizer.get_config() == model.optimizer.get_config()
    check_same_outputs(model, tiered, np.arange(6).reshape(2, 3))


class Subclassed(tf_keras.Model):
    def __init__(self):
        super().__init__()
        self.words = K.Embedding(9, 2)

    def call(self, ids):
        return self.words(ids)


class Custom(tf_keras.Sequential):
    def train_step(self, data):
        raise NotImplementedError


class Scaled(K.Embedding):
    def call(self, inputs):
        return 2 * super().call(inputs)


def wrapped_subclass():
    ids = tf_keras.Input([3], dtype="int64")
    return tf_keras.Model(ids, Subclassed()(ids))


@pytest.mark.parametrize(
    "model, error, message",
    [
        (lambda: Subclassed(), TypeError, "Subclassed.*HPSEmbedding in it"),
        (lambda: Custom([K.Dense(1)]), TypeError, "Custom"),
        (wrapped_subclass, ValueError, "inside of '.*', a Subclassed"),
        (lambda: K.Embedding(9, 2), TypeError, "model of tf_keras"),
        (lambda: "model", TypeError, "model of tf_keras.*'model'"),
    ],
)
def test_models_that_cannot_be_copied(model, error, message):
    with pytest.raises(error, match=f"(?s){message}"):
        tf_hps.make_tiered(model())


@pytest.mark.parametrize(
    "layer, message",
    [
        (lambda: K.Embedding(9, 2, embeddings_regularizer="l2", name="words"), "regularizer"),
        (lambda: K.Embedding(9, 2, embeddings_constraint="non_neg", name="words"), "constraint"),
        (lambda: K.Embedding(9, 2, sparse=True, name="words"), "sparse=True"),
        (lambda: Scaled(9, 2, name="words"), "Scaled, a subclass"),
        (lambda: K.TimeDistributed(K.Embedding(9, 2, name="words")), "inside.*TimeDistributed"),
    ],
)
def test_layers_that_cannot_be_moved(layer, message):
    ids = tf_keras.Input([3, 2], dtype="int64")
    model = tf_keras.Model(ids, K.Lambda(lambda x: x)(layer()(ids)))
    with pytest.raises(ValueError, match=f"(?s)'words'.*{message}.*min_rows"):
        tf_hps.make_tiered(model)
    if "sparse" not in message:
        tf_hps.make_tiered(model, min_rows=10)  # they may stay


def test_initializer_of_a_layer_that_is_not_built():
    model = tf_keras.Sequential(
        [K.Lambda(lambda x: x), K.Embedding(9, 2, "orthogonal", name="words")]
    )
    with pytest.raises(ValueError, match="(?s)'words' has no weights yet"):
        tf_hps.make_tiered(model)


def test_unsupported_optimizer_makes_nothing(tmp_path):
    with tf_hps.Store(tmp_path / "store") as store:
        with pytest.raises(ValueError, match="RMSprop.*Supported"):
            tf_hps.make_tiered(sequential(optimizer="rmsprop"), store=store)
        assert store.tables == {}
