"""Which inputs of a functional or Sequential model a layer's ids come from."""

import tensorflow as tf
import tf_keras
from tf_keras.src.engine import base_layer_utils

FLOAT_IDS_HINT = (
    "(tf_keras turns float64 into float32, which holds ids up to 2**24 only. "
    "cast_ids=True accepts them.)"
)


def source_inputs(layer):
    """Returns the symbolic model inputs that `layer` is computed from.

    Args:
      layer: a layer of tf_keras.

    Returns:
      List of the `tf_keras.Input` tensors above each of its calls on symbolic tensors, each once.
    """
    sources = {}
    for node in layer._inbound_nodes:
        for tensor in node.keras_inputs:
            # get_source_inputs of a model's input is that input itself.
            sources |= {id(source): source for source in tf_keras.utils.get_source_inputs(tensor)}
    return list(sources.values())


def refuse_float_ids(layer):
    """Raises if the model that is calling `layer` was given floats where it declares ids.

    A functional or Sequential model casts what it is given to the dtype of its `Input` before any
    layer sees it: a float32 that holds no id above 2**24 exactly would silently become another
    id's.

    Args:
      layer: a layer of tf_keras, inside of its `__call__`.

    Raises:
      TypeError: names the model, its input and the dtypes.
    """
    context = base_layer_utils.call_context()
    model = context.layer if context.in_call else None
    if not layer._inbound_nodes or not getattr(model, "_is_graph_network", False):
        return
    sources = {id(source) for source in source_inputs(layer)}
    given = model._flatten_to_reference_inputs(context.inputs)
    for declared, tensor in zip(model.inputs, given, strict=True):
        if id(declared) not in sources or not declared.dtype.is_integer:
            continue
        dtype = tf.as_dtype(getattr(tensor, "dtype", None) or declared.dtype)
        if dtype.is_floating or dtype.is_complex:
            raise TypeError(
                f"Layer '{layer.name}' got ids of dtype {dtype.name}, through the input "
                f"'{declared._keras_history.layer.name}' of model '{model.name}'; they must be "
                "int32 or int64. Cast the data, ids.astype('int64'), before it gets into the "
                f"model, and compile the model again. {FLOAT_IDS_HINT}"
            )
