"""make_tiered: an existing model with its Embedding layers moved into tables."""

import numpy as np
import tensorflow as tf
import tf_keras
from tf_keras.src.engine import functional

from tf_hps import initializers, keras3
from tf_hps.embedding import HPSEmbedding
from tf_hps.optimizer import HPSOptimizer
from tf_hps.store import check_store, default_store

_CHUNK_ROWS = 65536


def make_tiered(model, store=None, min_rows=0, *, overwrite=False):
    """Returns a copy of `model` whose Embedding layers keep their rows in tables.

    All weights are copied; `model` stays as it is and shares nothing with the copy, but
    for the tables of HPSEmbedding layers that it already has. If it is compiled, so is the
    copy: same loss, metrics and settings, and an `HPSOptimizer` around a new optimizer of
    the same configuration, which starts from step 0 with fresh state.

    >>> dense = tf_keras.Sequential([tf_keras.layers.Embedding(100, 4), tf_keras.layers.Dense(1)])
    >>> dense.compile("adam", "mse")
    >>> model = tf_hps.make_tiered(dense)
    >>> model.layers[0].table.size()
    100
    >>> bool(tf.reduce_all(model(tf.constant([[5, 99]])) == dense(tf.constant([[5, 99]]))))
    True
    >>> model.optimizer.inner.name
    'Adam'

    Args:
      model: a functional or Sequential `tf_keras` model. Such models within it are
        treated alike.
      store: the `Store` for the tables; `None`: the process's default one. In a store with
        a path a table has its layer's name.
      min_rows: layers with a smaller `input_dim` stay as they are.
      overwrite: whether rows that the store has in tables of these names may be replaced.

    Raises:
      TypeError: not a model of tf_keras, or one whose layers can't be seen, as a
        subclassed one.
      ValueError: a layer can't be moved into a table, its table in the store has rows
        already, or the optimizer can't train tables. Nothing has been made then.
    """
    check_store(store)
    _check(model, min_rows)
    if not overwrite:
        _check_no_rows(model, default_store() if store is None else store, min_rows)
    optimizer = _wrapped_optimizer(model.optimizer) if model._is_compiled else None
    copies = _Copies(store, min_rows)
    tiered = copies.copy_of(model)
    copies.copy_weights()
    if optimizer is not None:
        tiered.compile(optimizer, **_compile_arguments(model))
    return tiered


class _Copies:
    """Copies of layers: one for each layer, however often it is used."""

    def __init__(self, store, min_rows):
        self._store = store
        self._min_rows = min_rows
        self._pairs = {}  # id of a layer -> (layer, its copy)

    def copy_of(self, layer):
        if id(layer) not in self._pairs:
            self._pairs[id(layer)] = layer, self._new_copy(layer)
        return self._pairs[id(layer)][1]

    def _new_copy(self, layer):
        if _is_graph(layer):
            return self._copy_model(layer)
        if _moves(layer, self._min_rows):
            return _table_layer(layer, self._store)
        if isinstance(layer, HPSEmbedding):
            return HPSEmbedding.from_config(layer.get_config() | {"table": layer.table})
        return type(layer).from_config(layer.get_config())

    def _copy_model(self, model):
        inputs = None
        if isinstance(model, tf_keras.Sequential) and model.inputs:
            # A Sequential model that was built by its first batch has no input layer to copy.
            (x,) = model.inputs
            inputs = tf_keras.Input(batch_shape=x.shape, dtype=x.dtype, name=model.input_names[0])
        return tf_keras.models.clone_model(model, inputs, self.copy_of)

    def copy_weights(self):
        for layer, copy in self._pairs.values():
            if _is_graph(layer) or isinstance(layer, HPSEmbedding) or not layer.built:
                continue
            if not isinstance(copy, HPSEmbedding):
                copy.set_weights(layer.get_weights())
            else:
                _copy_rows(layer.embeddings, copy)


def _is_graph(layer):
    return isinstance(layer, functional.Functional)  # a Sequential is one, too


def _moves(layer, min_rows):
    return isinstance(layer, tf_keras.layers.Embedding) and layer.input_dim >= min_rows


def _table_layer(layer, store):
    """An HPSEmbedding in the place of Embedding `layer`."""
    config = layer.get_config()
    for option in ("embeddings_regularizer", "embeddings_constraint"):
        config.pop(option)
    if not _has_spec(layer):
        # All ids of the layer have their rows already: nothing will be drawn from it.
        config["embeddings_initializer"] = "uniform"
    return HPSEmbedding.from_config(config | {"store": store, "cast_ids": True})


def _has_spec(layer):
    try:
        initializers.to_spec(layer.embeddings_initializer, layer.input_dim, layer.output_dim)
    except ValueError:
        return False
    return True


def _copy_rows(matrix, layer):
    if not layer.built:
        layer.build()
    for start in range(0, matrix.shape[0], _CHUNK_ROWS):
        rows = matrix[start : start + _CHUNK_ROWS]
        layer.table.upsert(np.arange(start, start + rows.shape[0]), rows)


def _check(model, min_rows):
    """Raises for what can't be copied, before anything is."""
    if keras3.is_keras3(model):
        raise TypeError(f"{model!r} is a model of Keras 3. {keras3.HINT}.")
    if not isinstance(model, tf_keras.Model):
        raise TypeError(f"make_tiered takes a model of tf_keras. Received: {model!r}")
    if not _is_copyable(model):
        raise TypeError(
            f"Model '{model.name}' is a subclass, {type(model).__name__}: its layers can't be "
            "exchanged from outside. Use tf_hps.HPSEmbedding in it instead of Embedding."
        )
    for layer in model.layers:
        if _is_graph(layer):
            _check(layer, min_rows)
        elif _moves(layer, min_rows):
            _check_embedding(layer)
        else:
            _check_no_hidden(layer, min_rows)


def _is_copyable(model):
    if isinstance(model, tf_keras.Sequential):
        return type(model) is tf_keras.Sequential
    return _is_graph(model) and functional.has_functional_like_constructor(type(model))


def _check_embedding(layer):
    if type(layer) is not tf_keras.layers.Embedding:
        raise ValueError(
            f"Layer '{layer.name}' is a {type(layer).__name__}, a subclass of Embedding whose "
            "behaviour can't be kept. Exchange it by hand, or raise min_rows above "
            f"{layer.input_dim}."
        )
    for option in ("embeddings_regularizer", "embeddings_constraint", "sparse"):
        if getattr(layer, option):
            raise ValueError(
                f"Layer '{layer.name}' has {option}={getattr(layer, option)}, which tables don't "
                f"support. Remove it, or raise min_rows above {layer.input_dim}."
            )
    if not layer.built and not _has_spec(layer):
        raise ValueError(
            f"Layer '{layer.name}' has no weights yet, and a table can't draw rows from "
            f"{layer.embeddings_initializer!r}. Build the model first."
        )


def _check_no_rows(model, store, min_rows):
    if store.temporary:
        return  # there each model has tables of its own
    tables = store.tables
    for layer in model._flatten_layers(include_self=False):
        table = tables.get(layer.name) if _moves(layer, min_rows) else None
        if table is not None and table.size() > 0:
            raise ValueError(
                f"Layer '{layer.name}': the store at '{store.path}' has a table of that name, with "
                f"{table.size()} rows, which those of the layer would replace. To go on with the "
                "rows that are there, build the model with tf_hps.HPSEmbedding; to replace them, "
                "pass overwrite=True."
            )


def _check_no_hidden(layer, min_rows):
    for inner in layer._flatten_layers(include_self=False):
        if _moves(inner, min_rows):
            raise ValueError(
                f"Layer '{inner.name}' is inside of '{layer.name}', a {type(layer).__name__}, and "
                "can't be exchanged from outside. Use tf_hps.HPSEmbedding there, or raise min_rows "
                f"above {inner.input_dim}."
            )


def _wrapped_optimizer(optimizer):
    """An optimizer for tables with the configuration of `optimizer`, and no state."""
    if isinstance(optimizer, tf_keras.mixed_precision.LossScaleOptimizer):
        config = optimizer.get_config()
        inner = _wrapped_optimizer(optimizer.inner_optimizer)
        return type(optimizer).from_config(config | {"inner_optimizer": inner})
    if not isinstance(optimizer, HPSOptimizer):
        optimizer = HPSOptimizer(optimizer)  # only for its config: it has no state of its own
    return HPSOptimizer.from_config(optimizer.get_config())


def _compile_arguments(model):
    """What `model` was compiled with, but for the optimizer; metrics get fresh state."""
    arguments = dict(model._compile_config.config)
    del arguments["optimizer"]
    for name in ("metrics", "weighted_metrics"):
        arguments[name] = tf.nest.map_structure(_fresh_metric, arguments[name])
    return arguments


def _fresh_metric(metric):
    if isinstance(metric, tf_keras.metrics.Metric):
        return type(metric).from_config(metric.get_config())
    return metric
