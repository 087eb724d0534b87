"""What training refuses: each a specific error, before anything has changed."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from twins import exported, slices, small_model

import tf_hps
from tf_hps.anchor import AnchorVariable, anchor_of

optimizers = tf_keras.optimizers


# The layer's arguments and inputs.


@pytest.mark.parametrize("output_dim", [0, -1, 1.5, None, True])
def test_output_dim(output_dim):
    with pytest.raises(ValueError, match=f"output_dim.*{output_dim}"):
        tf_hps.HPSEmbedding(10, output_dim)


@pytest.mark.parametrize("input_dim", [0, -3, 2.5, "many"])
def test_input_dim(input_dim):
    with pytest.raises(ValueError, match=f"input_dim.*{input_dim}"):
        tf_hps.HPSEmbedding(input_dim, 4)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"combiner": "max"}, "combiner.*'sum'.*'max'"),
        ({"embeddings_initializer": "orthogonal"}, "[Oo]rthogonal"),
        ({"embeddings_initializer": "no such one"}, "no such one"),
        ({"embeddings_regularizer": "l2"}, "embeddings_regularizer='l2' is not supported"),
        ({"embeddings_constraint": "non_neg"}, "embeddings_constraint='non_neg' is not supported"),
        ({"dtype": "float64"}, "float64.*float32"),
        ({"seed": 1.5}, "seed.*1.5"),
    ],
)
def test_layer_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        tf_hps.HPSEmbedding(10, 4, **arguments)(tf.constant([1]))


def test_unknown_layer_argument():
    with pytest.raises(TypeError, match="sparse"):
        tf_hps.HPSEmbedding(10, 4, sparse=True)


def test_table_arguments():
    table = tf_hps.Table("of dim 3", 3)
    with pytest.raises(ValueError, match="output_dim=4.*'of dim 3'.*dim=3"):
        tf_hps.HPSEmbedding(10, 4, table=table)
    with pytest.raises(TypeError, match="table.*'user'"):
        tf_hps.HPSEmbedding(10, 4, table="user")
    with pytest.raises(ValueError, match="another store"):
        tf_hps.HPSEmbedding(10, 3, table=table, store=tf_hps.Store())


def test_table_of_that_name_with_another_layout(tmp_path):
    with tf_hps.Store(tmp_path / "store") as store:
        tf_hps.Table("user", 3, store=store)
        layer = tf_hps.HPSEmbedding(None, 4, store=store, name="user")
        with pytest.raises(tf.errors.InvalidArgumentError, match="(?s)user.*3.*4"):
            layer(tf.constant([1]))


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "int16", "uint8", "uint64", "bool"]
)
@pytest.mark.parametrize("graph", [False, True])
def test_ids_of_another_dtype(dtype, graph):
    layer = tf_hps.HPSEmbedding(10, 4, name="user")
    call = tf.function(layer) if graph else layer
    with pytest.raises(TypeError, match=f"(?s)'user' got ids of dtype {dtype}.*int32 or int64"):
        call(tf.cast([[1, 0]], dtype))


def test_input_declared_as_float():
    with pytest.raises(TypeError, match='(?s)float32.*Input.*dtype="int64"'):
        tf_hps.HPSEmbedding(10, 4)(tf_keras.Input([3]))


def test_refused_ids_leave_no_table_behind(tmp_path):
    with tf_hps.Store(tmp_path / "store") as store:
        layer = tf_hps.HPSEmbedding(10, 4, store=store, name="user")
        with pytest.raises(TypeError, match="float32"):
            layer(tf.constant([1.0]))
        assert not store.tables


def _one_input(layer):
    ids = tf_keras.Input([2], dtype="int64", name="ids")
    return tf_keras.Model(ids, layer(ids))


def _after_a_slice(layer):
    ids = tf_keras.Input([2], dtype="int32", name="ids")
    return tf_keras.Model(ids, layer(ids[:, :1] * 3))


def _named_inputs(layer):
    ids, price = tf_keras.Input([2], dtype="int64", name="ids"), tf_keras.Input([1], name="price")
    return tf_keras.Model({"ids": ids, "price": price}, layer(ids) + price)


def _sequential(layer):
    return tf_keras.Sequential([layer, tf_keras.layers.Dense(4)])


@pytest.mark.parametrize("kind", [_one_input, _after_a_slice, _named_inputs, _sequential])
@pytest.mark.parametrize("run_eagerly", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_float_ids_that_a_model_would_cast(kind, run_eagerly, dtype):
    """Keras casts what a model is given to the dtype of its Input, so no layer sees the floats."""
    layer = tf_hps.HPSEmbedding(None, 4, combiner="sum", name="user")
    for use in ("fit", "predict", "call"):
        model = kind(layer)
        model.compile(tf_hps.HPSOptimizer("sgd"), "mse", run_eagerly=run_eagerly)

        def run(ids, model=model, use=use):
            inputs = {"ids": ids, "price": np.ones([6, 1])} if kind is _named_inputs else ids
            if use == "fit":
                model.fit(inputs, np.ones([6, 4]), verbose=0)
            else:
                (model.predict if use == "predict" else model)(inputs)

        name = "user_input" if kind is _sequential else "ids"
        with pytest.raises(
            TypeError,
            match=f"(?s)'user' got ids of dtype float.*'{name}' of model '{model.name}'.*Cast",
        ):
            run(np.ones([6, 2], dtype))
        assert layer.table.size() == 0
    run(np.ones([6, 2], "int64"))
    layer.cast_ids = True
    run(np.ones([6, 2], dtype))


def test_a_float_input_that_the_model_casts_itself():
    ids = tf_keras.Input([2])
    model = tf_keras.Model(ids, tf_hps.HPSEmbedding(None, 4)(tf.cast(ids, tf.int64)))
    assert model.predict(np.ones([6, 2]), verbose=0).shape == (6, 2, 4)


@pytest.mark.parametrize(
    "ids", [tf.ragged.constant([[1], [2, 3]]), tf.sparse.from_dense([[1, 0], [0, 2]])]
)
def test_ragged_and_sparse_ids(ids):
    with pytest.raises(TypeError, match=f"(?s){type(ids).__name__}.*dense"):
        tf_hps.HPSEmbedding(10, 4)(ids)


def test_combiner_of_a_scalar():
    with pytest.raises(ValueError, match="(?s)combines the last axis.*scalar"):
        tf_hps.HPSEmbedding(10, 4, combiner="sum")(tf.constant(1))


def test_weights_as_arrays():
    """Keras's arrays would silently lack the rows."""
    layer = tf_hps.HPSEmbedding(10, 4, name="user")
    layer(tf.constant([1]))
    with pytest.raises(TypeError, match="'user.*save_weights"):
        layer.get_weights()
    with pytest.raises(TypeError, match="'user.*save_weights"):
        layer.set_weights([np.zeros([0, 4])])


# Keras 3: plain tf.keras in TensorFlow 2.21.

KERAS3 = "tf_keras.*TF_USE_LEGACY_KERAS=1"


def test_keras3_sequential():
    with pytest.raises(ValueError, match=KERAS3):
        tf.keras.Sequential([tf_hps.HPSEmbedding(10, 4)])


def test_keras3_functional():
    with pytest.raises(TypeError, match=KERAS3):
        tf_hps.HPSEmbedding(10, 4)(tf.keras.Input([3], dtype="int64"))


def test_keras3_subclassed_model():
    class Model(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.embedding = tf_hps.HPSEmbedding(10, 4)

        def call(self, ids):
            return self.embedding(ids)

    with pytest.raises(TypeError, match=KERAS3):
        Model()(np.array([[1]]))
    tf_hps.HPSEmbedding(10, 4)(np.array([[1]]))  # outside of it still works


def test_keras3_model_compiled_with_the_optimizer():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    with pytest.raises(ValueError, match=KERAS3):
        model.compile(tf_hps.HPSOptimizer("sgd"), "mse")


def test_keras3_optimizer():
    with pytest.raises(TypeError, match=f"keras.*Adam.*Keras 3.*{KERAS3}"):
        tf_hps.HPSOptimizer(tf.keras.optimizers.Adam())


def test_keras3_model_in_make_tiered():
    with pytest.raises(TypeError, match=KERAS3):
        tf_hps.make_tiered(tf.keras.Sequential([tf.keras.layers.Embedding(10, 4)]))


# Optimizers that are not wrapped.


class SlotlessOptimizer(optimizers.Optimizer):
    """Of the kind users write themselves."""

    def __init__(self):
        super().__init__("slotless")

    def build(self, var_list):
        pass

    def apply_gradients(self, grads_and_vars, **kwargs):
        for gradient, variable in grads_and_vars:
            variable.scatter_sub(gradient)


UNWRAPPED = {
    "SGD": optimizers.SGD,
    "Adagrad": optimizers.Adagrad,
    "Adam": optimizers.Adam,
    "AdamW": optimizers.AdamW,
    "RMSprop": optimizers.RMSprop,
    "Ftrl": optimizers.Ftrl,
    "Adafactor": optimizers.Adafactor,
    "Lion": optimizers.Lion,
    "Nadam": optimizers.Nadam,
    "of one's own": SlotlessOptimizer,
    "legacy SGD": optimizers.legacy.SGD,
    "legacy SGD with momentum": lambda: optimizers.legacy.SGD(momentum=0.9),
    "legacy Adam": optimizers.legacy.Adam,
    "loss scaling": lambda: tf_keras.mixed_precision.LossScaleOptimizer(optimizers.SGD()),
    "legacy loss scaling": lambda: tf_keras.mixed_precision.LossScaleOptimizer(
        optimizers.legacy.SGD()
    ),
}


@pytest.mark.parametrize("run_eagerly", [False, True])
@pytest.mark.parametrize("name", UNWRAPPED)
def test_optimizer_that_is_not_wrapped(name, run_eagerly):
    layer = tf_hps.HPSEmbedding(10, 4, name="user")
    model = small_model(layer)
    model.compile(UNWRAPPED[name](), "mse", run_eagerly=run_eagerly)
    weights = model.layers[-1].get_weights()[0]
    with pytest.raises(TypeError, match=r"(?s)'user.*Wrap it: tf_hps.HPSOptimizer\("):
        model.fit(np.ones([2, 4], np.int64), np.ones([2, 1]), verbose=0)
    np.testing.assert_array_equal(model.layers[-1].get_weights()[0], weights)
    assert run_eagerly or layer.table.size() == 0


@pytest.mark.parametrize(
    "optimizer",
    [tf.keras.optimizers.SGD, tf.keras.optimizers.Adam]
    + [
        lambda: tf.compat.v1.train.GradientDescentOptimizer(0.1),
        lambda: tf.compat.v1.train.AdagradOptimizer(0.1),
    ],
)
def test_foreign_optimizer_that_is_not_wrapped(optimizer):
    anchor = anchor_of(tf_hps.Table("foreign", 2))
    with pytest.raises(TypeError, match=r"Wrap it: tf_hps.HPSOptimizer\("):
        optimizer().apply_gradients([(slices([[1, 1]], [3]), anchor)])


@pytest.mark.parametrize("method", ["assign_add", "assign_sub", "scatter_add", "scatter_update"])
def test_anchor_cannot_be_changed(method):
    anchor = anchor_of(tf_hps.Table("anchored", 2))
    assert isinstance(anchor, AnchorVariable) and isinstance(anchor, tf.Variable)
    with pytest.raises(TypeError, match="Wrap it"):
        getattr(anchor, method)(tf.zeros([0, 2]))


# What can be wrapped.


@pytest.mark.parametrize(
    "inner, error, message",
    [
        (lambda: optimizers.RMSprop(), ValueError, "RMSprop.*Supported.*SGD.*Adagrad.*Adam"),
        (lambda: "ftrl", ValueError, "Ftrl.*Supported"),
        (lambda: optimizers.AdamW(), ValueError, "AdamW.*Supported"),
        (lambda: type("MyAdam", (optimizers.Adam,), {})(), ValueError, "MyAdam.*Supported"),
        (lambda: "no_such_optimizer", ValueError, "no_such_optimizer"),
        (lambda: optimizers.Adam(weight_decay=0.1), ValueError, "weight_decay=0.1"),
        (lambda: optimizers.SGD(use_ema=True), ValueError, "use_ema=True"),
        (lambda: optimizers.legacy.Adam(), TypeError, "legacy.*tf_keras.optimizers.Adam"),
        (lambda: tf_hps.HPSOptimizer("sgd"), TypeError, "already"),
        (lambda: 0.1, TypeError, "tf_keras.*0.1.*float"),
        (lambda: optimizers.Adam, TypeError, "tf_keras.*Adam.*type"),
        (lambda: None, TypeError, "tf_keras.*None"),
        (
            lambda: tf_keras.mixed_precision.LossScaleOptimizer(optimizers.SGD()),
            TypeError,
            r"LossScaleOptimizer\(tf_hps.HPSOptimizer\(inner\)\)",
        ),
    ],
)
def test_optimizers_that_cannot_be_wrapped(inner, error, message):
    with pytest.raises(error, match=f"(?s){message}"):
        tf_hps.HPSOptimizer(inner())


def test_non_finite_option():
    with pytest.raises(ValueError, match="non_finite.*'error', 'skip', 'propagate'.*'ignore'"):
        tf_hps.HPSOptimizer("sgd", non_finite="ignore")


# Gradients.


def test_gradient_of_a_wrong_width():
    anchor = anchor_of(tf_hps.Table("narrow", 2))
    with pytest.raises(ValueError, match=r"'narrow'.*\(1, 3\).*\[n, 2\]"):
        tf_hps.HPSOptimizer("sgd").apply_gradients([(slices([[1, 1, 1]], [5]), anchor)])


def test_gradient_of_a_wrong_width_that_shows_late():
    table = tf_hps.Table("late", 2)

    @tf.function(input_signature=[tf.TensorSpec([None, None])])
    def apply(values):
        gradient = tf.IndexedSlices(values, tf.constant([5], tf.int64))
        optimizer.apply_gradients([(gradient, anchor_of(table))])

    optimizer = tf_hps.HPSOptimizer("sgd")
    with pytest.raises(tf.errors.InvalidArgumentError, match="late"):
        apply([[1.0, 1.0, 1.0]])
    assert table.size() == 0 == optimizer.iterations


def test_more_keys_than_gradients():
    table = tf_hps.Table("unequal", 2)
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        tf_hps.HPSOptimizer("sgd").apply_gradients([(slices([[1, 1]], [5, 6]), anchor_of(table))])
    assert table.size() == 0


def test_dense_gradient_of_a_table():
    anchor = anchor_of(tf_hps.Table("dense", 2))
    with pytest.raises(TypeError, match="'dense'.*dense tensor.*IndexedSlices"):
        tf_hps.HPSOptimizer("sgd").apply_gradients([(tf.zeros([0, 2]), anchor)])


def test_no_gradient_at_all():
    anchor = anchor_of(tf_hps.Table("none", 2))
    with pytest.raises(ValueError, match="No gradients provided for any variable"):
        tf_hps.HPSOptimizer("sgd").apply_gradients([(None, anchor)])


def non_finite_step(bad, non_finite, graph):
    """A step on a dense weight and two tables, one with a gradient that is not finite."""
    optimizer = tf_hps.HPSOptimizer(optimizers.SGD(1.0), non_finite)
    weight = tf.Variable([1.0])
    tables = [
        tf_hps.Table(f"{name}{bad}{non_finite}{graph}", 2, initializer="ones") for name in "ab"
    ]
    tables[1].upsert([3], [[5, 5]])

    def step():
        optimizer.apply_gradients(
            [
                (tf.constant([1.0]), weight),
                (slices([[1, 1]], [7]), anchor_of(tables[0])),
                (slices([[1, bad], [1, 1]], [3, 4]), anchor_of(tables[1])),
            ]
        )

    return (tf.function(step) if graph else step), optimizer, weight, tables


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_gradient_that_is_not_finite_changes_nothing(bad, graph):
    step, optimizer, weight, tables = non_finite_step(bad, "error", graph)
    with pytest.raises(tf.errors.InvalidArgumentError, match="(?s)finite.*3|3.*finite"):
        step()
    assert optimizer.iterations == 0 and weight == 1.0
    assert exported(tables[0]) == {}
    assert {key: row.tolist() for key, row in exported(tables[1]).items()} == {3: [5, 5]}


@pytest.mark.parametrize("graph", [False, True])
def test_skip_leaves_out_the_rows_concerned(graph):
    step, optimizer, weight, tables = non_finite_step(np.nan, "skip", graph)
    step()
    assert optimizer.iterations == 1 and weight == 0.0
    assert exported(tables[0])[7].tolist() == [0, 0]
    rows = {key: row.tolist() for key, row in exported(tables[1]).items()}
    assert rows == {3: [5, 5], 4: [0, 0]}


def test_propagate_applies_what_is_not_finite():
    step, _, _, tables = non_finite_step(np.inf, "propagate", False)
    step()
    assert exported(tables[1])[3].tolist() == [4, -np.inf]


def test_fit_stops_at_a_loss_that_is_not_finite():
    layer = tf_hps.HPSEmbedding(None, 4)
    model = small_model(layer)
    model.compile(tf_hps.HPSOptimizer("adam"), "mse")
    with pytest.raises(tf.errors.InvalidArgumentError, match="finite"):
        model.fit(np.ones([2, 4], np.int64), np.full([2, 1], np.nan), verbose=0)
    assert model.optimizer.iterations == 0
    assert np.all(np.isfinite(model.layers[-1].get_weights()[0]))


def test_lookups_within_a_loop_in_a_graph():
    """A while loop's gradients are dense tensors, which know no rows."""
    layer = tf_hps.HPSEmbedding(None, 2)
    layer.build()

    @tf.function
    def gradient():
        with tf.GradientTape() as tape:
            loss = 0.0
            for i in tf.range(3):
                loss += tf.reduce_sum(layer(i))
        return tape.gradient(loss, layer.trainable_variables)

    with pytest.raises(TypeError):
        gradient()


# Strategies.


def test_strategies_with_several_replicas():
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    optimizer = tf_hps.HPSOptimizer("sgd")
    with strategy.scope():
        with pytest.raises(NotImplementedError, match="HPSOptimizer.*MirroredStrategy.*OneDevice"):
            tf_hps.HPSOptimizer("sgd")
        with pytest.raises(NotImplementedError, match="'user'.*MirroredStrategy.*OneDevice"):
            tf_hps.HPSEmbedding(10, 4, name="user")(tf.constant([1]))
    anchor = anchor_of(tf_hps.Table("mirrored", 2))
    with pytest.raises(NotImplementedError, match="MirroredStrategy"):
        strategy.run(lambda: optimizer.apply_gradients([(slices([[1, 1]], [5]), anchor)]))


def test_one_device_strategy_works():
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        layer = tf_hps.HPSEmbedding(None, 4)
        model = small_model(layer)
        model.compile(tf_hps.HPSOptimizer("adagrad"), "mse")
    model.fit(np.array([[1, 2, 3, 3]]), np.ones([1, 1]), verbose=0)
    assert layer.table.size() == 3 and model.optimizer.iterations == 1


# Checkpoints.


def test_checkpoint_of_a_dense_layer(tmp_path):
    tf_keras.Sequential([tf_keras.layers.Embedding(10, 4, input_length=1)]).save_weights(
        tmp_path / "dense"
    )
    model = tf_keras.Sequential([tf_hps.HPSEmbedding(10, 4, input_length=1, name="user")])
    with pytest.raises(ValueError, match="(?s)'user'.*make_tiered|holds no tf_hps tables"):
        model.load_weights(tmp_path / "dense")
