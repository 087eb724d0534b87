"""DeepFM (Guo et al., IJCAI 2017) for whatever kind of embedding layer.

Each field has two embeddings: a vector, which meets the other fields' vectors in the
factorization machine and in the deep network, and a single weight, the first-order term.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import movielens
import tensorflow as tf
import tf_keras

# (field, ids, dim) -> [batch, dim]: looks the field's ids up in an embedding of its own, and takes
# the mean over the ids of a multi-valued field. The one thing that differs between the two models.
Embed = Callable[[str, tf.Tensor, int], tf.Tensor]


class FactorizationMachine(tf_keras.layers.Layer):
    """The sum of the dot products of all pairs of vectors: a list of [batch, dim] to [batch, 1].

    Computed as ((sum of v)^2 - sum of v^2) / 2, summed over dim (Rendle, ICDM 2010).
    """

    def call(self, vectors: Sequence[tf.Tensor]) -> tf.Tensor:
        stacked = tf.stack(vectors, axis=1)  # [batch, fields, dim]
        of_sum = tf.square(tf.reduce_sum(stacked, axis=1))
        of_squares = tf.reduce_sum(tf.square(stacked), axis=1)
        return tf.reduce_sum(of_sum - of_squares, axis=1, keepdims=True) / 2


def build(embed: Embed, dim: int = 8, hidden: Sequence[int] = (64,)) -> tf_keras.Model:
    """A model from a dict of ids (see `MovieLens.features`) to the chance of a click, [batch, 1].

    Args:
      embed: makes a field's embedding layer and calls it.
      dim: length of the fields' vectors.
      hidden: widths of the deep network's layers.
    """
    ids = {field: tf_keras.Input([], dtype="int64", name=field) for field in movielens.PLAIN}
    for field in movielens.MULTI_VALUED:
        ids[field] = tf_keras.Input([movielens.GENRES_PER_ITEM], dtype="int64", name=field)

    vectors = [embed(field, ids[field], dim) for field in movielens.FIELDS]
    weights = [embed(field, ids[field], 1) for field in movielens.FIELDS]

    deep = tf_keras.layers.Concatenate(name="deep_input")(vectors)
    for number, width in enumerate(hidden, start=1):
        deep = tf_keras.layers.Dense(width, "relu", name=f"deep_{number}")(deep)
    deep = tf_keras.layers.Dense(1, name="deep_output")(deep)

    logit = tf_keras.layers.Add(name="logit")(
        [*weights, FactorizationMachine(name="fm")(vectors), deep]
    )
    click = tf_keras.layers.Activation("sigmoid", name="click")(logit)
    return tf_keras.Model(ids, click, name="deepfm")
