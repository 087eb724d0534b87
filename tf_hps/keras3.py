"""Says so where Keras 3 (TensorFlow 2.21's plain `tf.keras`) meets a tf_keras object."""

import sys

import tensorflow as tf

HINT = (
    "With Keras 3 (plain tf.keras) use tf_keras instead, or set the environment variable "
    "TF_USE_LEGACY_KERAS=1 before TensorFlow is imported"
)


def is_keras3(value):
    """Whether `value`'s class is one of Keras 3's, without importing Keras 3."""
    return type(value).__module__.partition(".")[0] == "keras"


def refuse_call(layer, inputs):
    """Raises if a layer of tf_keras is called by, or on a symbol of, Keras 3.

    Keras 3 does not see the weights of such a layer and would never train it.

    Args:
      layer: the layer that is called.
      inputs: its inputs.

    Raises:
      TypeError: says what to use instead.
    """
    if any(map(is_keras3, tf.nest.flatten(inputs))) or _in_keras3_call():
        raise TypeError(
            f"Layer '{layer.name}' (HPSEmbedding) is a layer of tf_keras and was called from "
            f"a Keras 3 model. {HINT}."
        )


def _in_keras3_call():
    state = sys.modules.get("keras.src.backend.common.global_state")
    return state is not None and state.get_global_attribute("current_call_ctx") is not None
