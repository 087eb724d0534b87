"""HPSEmbedding as a layer: a drop-in for tf_keras.layers.Embedding, and what it has more."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from twins import exported

import tf_hps
from tf_hps.anchor import AnchorVariable

INT64 = np.iinfo(np.int64)


def same_rows(vocabulary=20, dim=3, **kwargs):
    """A dense Embedding and an HPSEmbedding with its rows."""
    dense = tf_keras.layers.Embedding(vocabulary, dim, **kwargs)
    dense.build([None])
    tiered = tf_hps.HPSEmbedding(vocabulary, dim, **kwargs)
    tiered.build()
    tiered.table.upsert(np.arange(vocabulary), dense.get_weights()[0])
    return dense, tiered


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (2, 3, 4), (0,), (0, 3), (3, 0), (2, 0, 2)])
def test_reads_as_the_dense_layer(shape, dtype):
    dense, tiered = same_rows()
    ids = tf.constant(np.random.default_rng(0).integers(0, 20, shape), dtype)
    for training in (False, True):
        np.testing.assert_array_equal(tiered(ids, training=training), dense(ids))
        in_graph = tf.function(lambda ids, training=training: tiered(ids, training=training))
        np.testing.assert_array_equal(in_graph(ids), dense(ids))
    assert tiered(ids).dtype == tf.float32


def test_numpy_and_lists_are_ids_too():
    dense, tiered = same_rows()
    ids = np.array([[1, 2], [3, 1]])
    np.testing.assert_array_equal(tiered(ids), dense(ids))
    np.testing.assert_array_equal(tiered([1, 2, 3]), dense(np.array([1, 2, 3])))


def test_one_traced_function_takes_every_batch_size():
    dense, tiered = same_rows()
    function = tf.function(tiered, input_signature=[tf.TensorSpec([None, None], tf.int64)])
    for shape in ((4, 2), (0, 2), (1, 7)):
        ids = np.random.default_rng(1).integers(0, 20, shape)
        np.testing.assert_array_equal(function(ids), dense(ids))
    assert function.experimental_get_tracing_count() == 1


def test_every_int64_is_an_id():
    layer = tf_hps.HPSEmbedding(None, 4)
    ids = tf.constant([0, -1, -2, 1, INT64.min, INT64.min + 1, INT64.max, INT64.max - 1])
    rows = layer(ids, training=True).numpy()
    assert layer.table.size() == 8 == len(np.unique(rows, axis=0))
    np.testing.assert_array_equal(layer(tf.reverse(ids, [0])), rows[::-1])
    assert sorted(ids.numpy()) == list(exported(layer.table))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("bad", [-1, 20, 12345678901])
def test_ids_outside_of_input_dim_raise(bad, training):
    layer = tf_hps.HPSEmbedding(20, 3)
    ids = tf.constant([[3, bad]])
    with pytest.raises(tf.errors.InvalidArgumentError, match=str(bad)):
        layer(ids, training=training)
    with pytest.raises(tf.errors.InvalidArgumentError, match=str(bad)):
        tf.function(lambda ids: layer(ids, training=training))(ids)
    assert layer.table.size() == 0


def test_looking_is_not_touching():
    layer = tf_hps.HPSEmbedding(None, 4)
    looked = layer(tf.constant([5, 6, 5])).numpy()
    assert layer.table.size() == 0
    created = layer(tf.constant([5, 6, 5]), training=True)
    assert layer.table.size() == 2
    np.testing.assert_array_equal(created, looked)


@pytest.mark.parametrize("training", [False, True])
def test_training_may_be_a_tensor(training):
    layer = tf_hps.HPSEmbedding(None, 4)

    @tf.function
    def gradient(ids, training):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(ids, training=training) ** 2)
        return tape.gradient(loss, layer.trainable_variables)[0]

    slices = gradient(tf.constant([5, 6, 5]), tf.constant(training))
    np.testing.assert_array_equal(slices.indices, [5, 6, 5])
    np.testing.assert_allclose(slices.values, 2 * layer(tf.constant([5, 6, 5])))
    assert layer.table.size() == (2 if training else 0)


def test_initial_rows_depend_on_seed_and_name_only():
    def rows(**kwargs):
        return tf_hps.HPSEmbedding(None, 8, **kwargs)(tf.constant([1, 2])).numpy()

    expected = rows(name="a")
    np.testing.assert_array_equal(rows(name="a"), expected)
    np.testing.assert_array_equal(rows(name="a", store=tf_hps.Store()), expected)
    assert not np.any(rows(name="a", seed=1) == expected)
    assert not np.any(rows(name="b") == expected)
    initializer = tf_keras.initializers.RandomUniform(seed=1)
    np.testing.assert_array_equal(
        rows(name="a", embeddings_initializer=initializer), rows(name="a", seed=1)
    )


@pytest.mark.parametrize(
    "initializer, low, high",
    [("zeros", 0, 0), ("ones", 1, 1), (tf_keras.initializers.Constant(3.0), 3, 3)]
    + [("uniform", -0.05, 0.05), ("glorot_uniform", -0.3, 0.3), ("truncated_normal", -0.1, 0.1)],
)
def test_initializers(initializer, low, high):
    layer = tf_hps.HPSEmbedding(60, 8, embeddings_initializer=initializer)
    rows = layer(tf.range(60)).numpy()
    assert low <= rows.min() and rows.max() <= high
    assert low == high or rows.min() < low / 2 < high / 2 < rows.max()


def test_layers_of_one_name_have_separate_tables():
    one, other = tf_hps.HPSEmbedding(None, 2, name="x"), tf_hps.HPSEmbedding(None, 2, name="x")
    one(tf.constant([1]), training=True)
    other.build()
    assert (one.table.size(), other.table.size()) == (1, 0)


def test_a_store_with_a_path_has_the_layer_s_table(tmp_path):
    with tf_hps.Store(tmp_path / "store") as store:
        layer = tf_hps.HPSEmbedding(None, 2, name="user", store=store)
        layer(tf.constant([7]), training=True)
        assert list(store.tables) == ["user"]
    with tf_hps.Store(tmp_path / "store") as store:
        layer = tf_hps.HPSEmbedding(None, 2, name="user", store=store)
        layer.build()
        assert layer.table.size() == 1


def test_layers_share_a_given_table():
    table = tf_hps.Table("shared rows", 2)
    layers = [tf_hps.HPSEmbedding(None, 2, table=table) for _ in range(2)]
    layers[0](tf.constant([1]), training=True)
    np.testing.assert_array_equal(layers[1](tf.constant([1])), layers[0](tf.constant([1])))
    assert layers[1].table is table
    assert layers[0].trainable_weights[0] is layers[1].trainable_weights[0]


def test_gradient_is_the_dense_layer_s():
    dense, tiered = same_rows()
    ids = tf.constant([[4, 2, 4], [0, 4, 19]], tf.int32)
    weights = tf.random.normal([2, 3, 3])
    slices = []
    for layer in (dense, tiered):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weights * layer(ids, training=True))
        slices.append(tape.gradient(loss, layer.trainable_variables)[0])
    np.testing.assert_array_equal(slices[1].values, slices[0].values)
    np.testing.assert_array_equal(slices[1].indices, slices[0].indices)
    assert slices[1].indices.dtype == tf.int64


def test_gradient_through_a_gather_of_the_rows():
    layer = tf_hps.HPSEmbedding(None, 2)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.gather(layer(tf.constant([8, 9])), [1, 1]))
    gradient = tape.gradient(loss, layer.trainable_variables)[0]
    np.testing.assert_array_equal(gradient.values, [[0, 0], [2, 2]])


def test_a_frozen_layer_neither_creates_nor_trains_rows():
    layer = tf_hps.HPSEmbedding(None, 2, input_length=1)
    model = tf_keras.Sequential([layer, tf_keras.layers.Flatten(), tf_keras.layers.Dense(1)])
    layer.table.upsert([1], [[1, 1]])
    layer.trainable = False
    model.compile(tf_hps.HPSOptimizer("sgd"), "mse")
    model.fit(np.array([[1], [2]]), np.ones([2, 1]), verbose=0)
    assert {key: row.tolist() for key, row in exported(layer.table).items()} == {1: [1, 1]}
    assert model.count_params() == 3


@pytest.mark.parametrize("shape", [(2, 5), (2, 3, 5)])
def test_mask_is_the_dense_layer_s(shape):
    dense, tiered = same_rows(mask_zero=True)
    ids = np.random.default_rng(0).integers(0, 3, shape)
    np.testing.assert_array_equal(tiered.compute_mask(ids), dense.compute_mask(ids))
    np.testing.assert_array_equal(tiered(ids)._keras_mask, dense(ids)._keras_mask)
    unmasked = tf_hps.HPSEmbedding(20, 3)
    assert unmasked.compute_mask(ids) is None and not unmasked.supports_masking


def test_mask_reaches_the_next_layer():
    dense, tiered = same_rows(mask_zero=True)
    lstm = tf_keras.layers.LSTM(2)
    ids = np.array([[3, 4, 0], [5, 0, 0]])
    outputs = [
        tf_keras.Sequential([tf_keras.Input([3], dtype="int64"), layer, lstm])(ids)
        for layer in (dense, tiered)
    ]
    np.testing.assert_array_equal(outputs[1], outputs[0])
    assert not np.allclose(outputs[1], lstm(tiered(ids), mask=None))


@pytest.mark.parametrize(
    "input_length, shape",
    [(None, (7,)), (None, (7, 2)), (4, (7, 4)), (4, (None, None)), ((None, 4), (7, 2, 4))],
)
def test_output_shape_is_the_dense_layer_s(input_length, shape):
    layers = [
        make(20, 3, input_length=input_length)
        for make in (tf_keras.layers.Embedding, tf_hps.HPSEmbedding)
    ]
    expected, shape = (layer.compute_output_shape(shape) for layer in layers)
    assert shape.as_list() == expected.as_list()


@pytest.mark.parametrize("shape", [(7, 5), (7, 4, 4)])
def test_output_shape_checks_input_length(shape):
    with pytest.raises(ValueError, match='input_length" is 4|input_length is 4'):
        tf_hps.HPSEmbedding(20, 3, input_length=4).compute_output_shape(shape)


@pytest.mark.parametrize("arguments", [{}, {"input_length": 4}, {"input_shape": (4,)}])
def test_sequential_declares_its_input_as_int64(arguments):
    layer = tf_hps.HPSEmbedding(None, 3, **arguments)
    model = tf_keras.Sequential([layer, tf_keras.layers.GlobalAveragePooling1D()])
    assert model.built and model.output_shape == (None, 3)
    big = 2**40 + np.arange(4)  # a float32 would merge these
    model(big[np.newaxis], training=True)
    assert list(exported(layer.table)) == big.tolist()


def test_sequential_without_a_known_input():
    layer = tf_hps.HPSEmbedding(None, 3)
    model = tf_keras.Sequential()
    model.add(layer)
    model.add(tf_keras.layers.Flatten())
    assert model.predict(np.array([[1, 2]]), verbose=0).shape == (1, 6)


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_dtype_policies(policy):
    layer = tf_hps.HPSEmbedding(9, 3, dtype=policy)
    rows = layer(tf.constant([[1, 2]]))
    assert (
        rows.dtype == layer.compute_dtype == tf_keras.mixed_precision.Policy(policy).compute_dtype
    )
    assert layer.variable_dtype == "float32"
    np.testing.assert_array_equal(rows, tf.cast(layer.table.lookup([[1, 2]]), rows.dtype))


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("shape", [(5,), (4, 5), (2, 3, 5), (4, 0), (0, 5)])
def test_combiner(combiner, shape):
    layer = tf_hps.HPSEmbedding(None, 3, combiner=combiner)
    ids = np.random.default_rng(0).integers(0, 4, shape)
    combined = layer(ids, training=True)
    rows = layer.table.lookup(ids).numpy()
    count = shape[-1]
    divisor = {"sum": 1, "mean": max(count, 1), "sqrtn": max(count, 1) ** 0.5}[combiner]
    np.testing.assert_allclose(combined, rows.sum(-2) / divisor, rtol=1e-6, atol=1e-8)
    assert layer.compute_output_shape(shape) == combined.shape == (*shape[:-1], 3)
    function = tf.function(layer, input_signature=[tf.TensorSpec([None] * len(shape), tf.int64)])
    np.testing.assert_array_equal(function(ids), combined)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_combiner_leaves_out_id_0_with_mask_zero(combiner):
    layer = tf_hps.HPSEmbedding(None, 2, combiner=combiner, mask_zero=True)
    ids = tf.constant([[3, 0, 4, 3], [0, 0, 0, 0], [0, 5, 0, 0]])
    with tf.GradientTape() as tape:
        combined = layer(ids, training=True)
        loss = tf.reduce_sum(combined)
    three, four, five = layer.table.lookup([3, 4, 5]).numpy()
    divisor = {"sum": 1, "mean": 3, "sqrtn": 3**0.5}[combiner]
    np.testing.assert_allclose(
        combined, [(2 * three + four) / divisor, [0, 0], five], rtol=1e-6, atol=1e-8
    )
    assert list(exported(layer.table)) == [3, 4, 5]
    gradient = tape.gradient(loss, layer.trainable_variables)[0]
    np.testing.assert_array_equal(gradient.indices, [3, 4, 3, 5])
    np.testing.assert_allclose(gradient.values[:, 0], [1 / divisor] * 3 + [1], rtol=1e-6)
    assert layer.compute_mask(ids) is None


def test_config_makes_the_same_layer():
    layer = tf_hps.HPSEmbedding(
        None,
        3,
        tf_keras.initializers.RandomNormal(1.0, 0.5),
        mask_zero=True,
        input_length=4,
        combiner="mean",
        seed=5,
        cast_ids=True,
        activity_regularizer="l2",
        name="words",
        dtype="mixed_float16",
        trainable=False,
    )
    config = layer.get_config()
    copy = tf_keras.layers.deserialize(tf_keras.layers.serialize(layer))
    assert type(copy) is tf_hps.HPSEmbedding and copy.get_config() == config
    ids = tf.constant([[1, 2, 0, 4]])
    np.testing.assert_array_equal(copy(ids), layer(ids))


@pytest.mark.parametrize("file", ["saved_model", "model.keras"])
def test_layers_of_a_loaded_model_share_their_table_again(file, tmp_path):
    table = tf_hps.Table("shared and saved", 2)
    ids = tf_keras.Input([3], dtype="int64")
    layers = [tf_hps.HPSEmbedding(None, 2, table=table, name=name) for name in ("a", "b", "own")]
    layers[2] = tf_hps.HPSEmbedding(None, 2, name="own")
    model = tf_keras.Model(ids, tf_keras.layers.Add()([layer(ids) for layer in layers]))
    model.compile(tf_hps.HPSOptimizer("adagrad"), "mse")
    batch = np.array([[1, 2, 3]])
    model.train_on_batch(batch, np.ones([1, 3, 2]))
    model.save(tmp_path / file, save_format=None if file.endswith("keras") else "tf")
    loaded = tf_keras.models.load_model(tmp_path / file)
    np.testing.assert_array_equal(loaded(batch), model(batch))
    tables = [loaded.get_layer(name).table for name in ("a", "b", "own")]
    assert tables[0] is tables[1] and tables[2] is not tables[0]
    assert table not in tables and len(loaded.trainable_weights) == 2
    loaded.train_on_batch(np.array([[7, 8, 9]]), np.ones([1, 3, 2]))
    assert [t.size() for t in (*tables, table)] == [6, 6, 6, 3]


def test_json_of_a_model_has_the_table():
    layer = tf_hps.HPSEmbedding(None, 2, table=tf_hps.Table("in json", 2, seed=4), input_length=1)
    copy = tf_keras.models.model_from_json(tf_keras.Sequential([layer]).to_json())
    np.testing.assert_array_equal(copy(np.array([[5]])), layer(np.array([[5]])))
    assert copy.layers[0].table is not layer.table


def test_clone_model_makes_an_own_table():
    layer = tf_hps.HPSEmbedding(9, 3, input_length=2)
    model = tf_keras.Sequential([layer, tf_keras.layers.Flatten()])
    model(tf.constant([[1, 2]]), training=True)
    clone = tf_keras.models.clone_model(model)
    assert clone.layers[0].table.size() == 0 and layer.table.size() == 2


def test_summary_and_weights(capsys):
    layer = tf_hps.HPSEmbedding(9, 3, input_length=2, name="words")
    model = tf_keras.Sequential([layer])
    model.summary()
    assert "words (HPSEmbedding)" in capsys.readouterr().out
    (anchor,) = model.trainable_variables
    assert isinstance(anchor, AnchorVariable) and anchor.shape == (0, 3)
    assert "anchor" in repr(anchor) and "words" in anchor.name


def test_cast_ids_takes_what_the_dense_layer_takes():
    dense, tiered = same_rows()
    tiered.cast_ids = True
    for dtype in ("float32", "float64", "int16", "uint8"):
        ids = np.array([[0, 3, 19]], dtype)
        np.testing.assert_array_equal(tiered(ids), dense(ids))


def test_activity_regularizer_acts_on_the_rows():
    layer = tf_hps.HPSEmbedding(9, 3, "ones", activity_regularizer=tf_keras.regularizers.L1(1.0))
    layer(tf.constant([[1, 2]]))
    assert sum(layer.losses) == 6.0  # Keras divides by the batch's size


def test_a_subclassed_model():
    class Bag(tf_keras.Model):
        def __init__(self):
            super().__init__()
            self.words = tf_hps.HPSEmbedding(None, 2, combiner="sum")
            self.top = tf_keras.layers.Dense(1)

        def call(self, ids):
            return self.top(self.words(ids))

    model = Bag()
    model.compile(tf_hps.HPSOptimizer("adagrad"), "mse")
    model.fit(np.array([[1, 2], [3, 3]]), np.ones([2, 1]), verbose=0)
    assert model.words.table.size() == 3
    model.predict(np.array([[8, 9]]), verbose=0)
    assert model.words.table.size() == 3
