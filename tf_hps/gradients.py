"""Gradients of the lookup ops: rows' gradients become slices of the anchor."""

import tensorflow as tf


def _lookup_gradient(op, gradient):
    """One slice per looked-up id, duplicates kept: IndexedSlices(values, keys).

    Slices stay as they are, one per id, until `HPSOptimizer` hands them to the
    table, so clipping sees what a dense layer's clipping sees.

    Args:
      op: the lookup, with inputs (table, keys, anchor).
      gradient: gradient of its rows, `[..., dim]` float32.

    Returns:
      Gradients of (table, keys, anchor): only the anchor has one.
    """
    values = tf.reshape(gradient, [-1, op.get_attr("dim")])
    keys = tf.reshape(tf.cast(op.inputs[1], tf.int64), [-1])
    return None, None, tf.IndexedSlices(values, keys)


for _op_type in ("TfHps>Lookup", "TfHps>LookupOrCreate"):
    tf.RegisterGradient(_op_type)(_lookup_gradient)
