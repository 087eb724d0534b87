"""Checks and converts what users pass: keys, values and numbers."""

import operator

import numpy as np
import tensorflow as tf


def positive_int(value, name):
    """Returns `value` as an int from 1 that 64 bits hold, or raises ValueError."""
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if not 1 <= number < 2**63 or isinstance(value, bool):
        raise ValueError(f"{name}: expected an int from 1 to 2**63 - 1. Received: {value!r}")
    return number


def any_int64(value, name):
    """Returns `value` as an int of 64 bits, or raises ValueError."""
    try:
        return int(np.int64(operator.index(value)))
    except (TypeError, OverflowError):
        raise ValueError(f"{name}: expected an int of 64 bits. Received: {value!r}") from None


def as_keys(keys):
    """Returns keys as an int32 or int64 tensor, or raises TypeError."""
    if isinstance(keys, (tf.RaggedTensor, tf.SparseTensor)):
        raise TypeError(
            f"keys: expected a dense tensor, such as its `.values`. Received: {type(keys).__name__}"
        )
    if not tf.is_tensor(keys):
        keys = _keys_array(keys)
    keys = tf.convert_to_tensor(keys)
    if keys.dtype not in (tf.int32, tf.int64):
        raise TypeError(
            f"keys: expected int32 or int64. Received: {keys.dtype.name}; tf.cast what is an id"
        )
    return keys


def _keys_array(keys):
    """Returns keys that are no tensor as an array; a list of ints is int64."""
    if hasattr(keys, "dtype"):
        return keys
    try:
        array = np.asarray(keys)
    except ValueError:
        raise TypeError(f"keys: expected an array of ints. Received: {keys!r:.200}") from None
    if array.dtype.kind in "uO" or (array.dtype.kind == "f" and not array.size):
        try:  # [] reads as float, ints above 63 bits as unsigned or objects
            return np.array(keys, np.int64)
        except (OverflowError, TypeError, ValueError):
            raise TypeError(f"keys: expected ints of 64 bits. Received: {keys!r:.200}") from None
    return array


def flat_int64(keys):
    """Returns a tensor of keys as int64 `[n]`."""
    return tf.cast(tf.reshape(keys, [-1]), tf.int64)


def as_values(values):
    """Returns values as a float32 tensor, or raises TypeError; numpy's floats are converted."""
    if not tf.is_tensor(values):
        values = np.asarray(values)
        if values.dtype.kind not in "fiu":
            raise TypeError(f"values: expected float32. Received: {values.dtype}")
        values = values.astype(np.float32, copy=False)
    values = tf.convert_to_tensor(values)
    if values.dtype != tf.float32:
        raise TypeError(f"values: expected float32. Received: {values.dtype.name}")
    return values
