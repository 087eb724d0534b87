"""prefetch: rows of coming batches come up from SSD while the current one trains."""

import tensorflow as tf
import tf_keras
from tf_keras.src.engine import functional

from tf_hps import _ops
from tf_hps._inputs import as_keys, positive_int
from tf_hps.embedding import HPSEmbedding
from tf_hps.table import Table

_MAPPING = (
    "Say it yourself: tf_hps.prefetch(dataset, {'user_id': model.user, 'item_ids': [model.item]}), "
    "the names (or positions) of inputs and the HPSEmbedding layers or Tables that they hold ids of"
)


def prefetch(dataset, model, depth=2):
    """Returns `dataset` with the rows that its coming batches need brought into memory ahead.

    A batch's rows are read from SSD when it is drawn from the dataset, up to `depth` batches
    before training gets to it, and stay in memory until then, if the budget has room for them.
    Results are the same as without, bit for bit; batches come out as they went in.

    >>> ids = tf_keras.Input([2], dtype="int64")
    >>> rows = tf_hps.HPSEmbedding(None, 4, combiner="mean")(ids % 1000)
    >>> model = tf_keras.Model(ids, tf_keras.layers.Dense(1)(rows))
    >>> model.compile(tf_hps.HPSOptimizer(tf_keras.optimizers.SGD()), "mse")
    >>> data = tf.data.Dataset.from_tensor_slices((np.ones([8, 2], int), np.ones([8, 1]))).batch(4)
    >>> history = model.fit(tf_hps.prefetch(data, model), verbose=0)

    It takes the place of `dataset.prefetch(depth)`, as the last step that makes a dataset.

    Args:
      dataset: a `tf.data.Dataset` of batches, as for `model.fit`: of inputs, or of tuples that
        begin with them.
      model: a functional or Sequential model: which inputs become ids of which layer is found here,
        whatever is done to them before. For other models a dict: of the key of an input (a
        name; a position in a tuple; None if the model has one input) to the `HPSEmbedding` or
        `Table`, or list of them, that it holds ids of.
      depth: how many batches ahead, an int from 1.

    Returns:
      A `tf.data.Dataset` of the same elements.

    Raises:
      TypeError: if `dataset` is no `tf.data.Dataset`, or `model` neither a model nor a dict.
      ValueError: if the model does not show which of its inputs are ids, or the dataset has no such
        inputs. The message says how to name them.
    """
    if not isinstance(dataset, tf.data.Dataset):
        raise TypeError(f"dataset: expected a tf.data.Dataset. Received: {type(dataset).__name__}")
    depth = positive_int(depth, "depth")
    ids_of = _ids_of_mapping(model) if isinstance(model, dict) else _ids_of_model(model)

    @tf.autograph.experimental.do_not_convert  # whose errors would hide ours
    def bring_up(*element):
        with tf.device("CPU:0"):
            for table, ids in ids_of(element[0]):
                _ops.ops.tf_hps_prefetch(table.handle, ids)
        return element if isinstance(dataset.element_spec, tuple) else element[0]

    return dataset.map(bring_up).prefetch(depth)


def _ids_of_mapping(mapping):
    """Returns a function of a batch's inputs to pairs (Table, its ids), given a user's dict."""
    users = []
    for key, layers in mapping.items():
        for layer in layers if isinstance(layers, (list, tuple)) else [layers]:
            if not isinstance(layer, (HPSEmbedding, Table)):
                raise TypeError(
                    f"model[{key!r}]: expected an HPSEmbedding, a Table, or a list of these. "
                    f"Received: {layer!r}"
                )
            users.append((key, layer))

    def ids_of(inputs):
        return [_pair(layer, _input_at(inputs, key)) for key, layer in users]

    return ids_of


def _input_at(inputs, key):
    """Returns the input of a batch that has a key."""
    try:
        return inputs if key is None else inputs[key]
    except (KeyError, IndexError, TypeError, ValueError):
        have = (
            sorted(inputs)
            if isinstance(inputs, dict)
            else len(inputs)
            if isinstance(inputs, tuple)
            else None
        )
        raise ValueError(
            f"model: the dataset's batches have no input {key!r}. They have: {have}"
        ) from None


def _ids_of_model(model):
    """Returns a function of a batch's inputs to pairs (Table, its ids), given a model."""
    if not isinstance(model, tf_keras.Model):
        raise TypeError(
            f"model: expected a model of tf_keras, or a dict. Received: {type(model).__name__}"
        )
    layers = [layer for layer in model._flatten_layers() if isinstance(layer, HPSEmbedding)]
    if not layers:
        raise ValueError(
            f"model: '{model.name}' has no HPSEmbedding layer; there is nothing to prefetch"
        )
    if isinstance(model, tf_keras.Sequential) and not model.inputs:
        # Not built yet: what the first layer gets is known all the same.
        if model.layers[:1] == layers:
            return lambda inputs: [_pair(layers[0], inputs)]
        raise ValueError(
            f"model: '{model.name}' is not built yet: call it on a batch first. {_MAPPING}"
        )
    if not isinstance(model, functional.Functional):
        raise ValueError(
            f"model: '{model.name}' is neither functional nor Sequential, so it does not show "
            f"which of its inputs are ids. {_MAPPING}"
        )
    ids_model, users = _ids_model(model)
    hidden = [layer.name for layer in layers if not any(layer is user for user in users)]
    if hidden:
        raise ValueError(
            f"model: the ids of {', '.join(hidden)} are made inside another layer of "
            f"'{model.name}', where they cannot be seen. {_MAPPING}"
        )

    def ids_of(inputs):
        return [
            _pair(user, ids) for user, ids in zip(users, ids_model(inputs).values(), strict=True)
        ]

    return ids_of


def _ids_model(model):
    """Returns the part of a functional model that makes ids of its inputs.

    Returns:
      A functional model of `model`'s inputs to a dict of ids, and a list of the HPSEmbedding
      layers that its values go to, some perhaps several times.
    """
    outputs, users = [], []
    for layer in model.layers:
        for i, node in enumerate(layer._inbound_nodes):
            if functional._make_node_key(layer.name, i) not in model._network_nodes:
                continue  # of a call outside of this model
            if isinstance(layer, HPSEmbedding):
                outputs.append(node.input_tensors)
                users.append(layer)
            elif isinstance(layer, functional.Functional):
                inner, inner_users = _ids_model(layer)
                if inner_users:
                    outputs += inner(node.input_tensors).values()
                    users += inner_users
    outputs = {f"{i:05}": ids for i, ids in enumerate(outputs)}  # TensorFlow sorts the keys
    return (tf_keras.Model(model.inputs, outputs) if users else None), users


def _pair(layer, ids):
    """Returns (Table, ids that its op takes)."""
    if isinstance(ids, tf.RaggedTensor):
        ids = ids.flat_values
    elif isinstance(ids, tf.SparseTensor):
        ids = ids.values
    if isinstance(layer, Table):
        return layer, as_keys(ids)
    if not layer.built:
        with tf.init_scope(), tf.name_scope(layer.name):
            layer.build()  # makes the table
    return layer.table, layer._checked_ids(ids)
