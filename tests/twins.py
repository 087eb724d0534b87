"""Twin models: the same weights, once with a dense Embedding and once with a table."""

import numpy as np
import tensorflow as tf
import tf_keras

import tf_hps

optimizers = tf_keras.optimizers

# Name -> a fresh optimizer of tf_keras with further arguments. None has its default state.
OPTIMIZERS = {
    "sgd": lambda **kwargs: optimizers.SGD(0.1, **kwargs),
    "momentum": lambda **kwargs: optimizers.SGD(0.05, momentum=0.8, **kwargs),
    "nesterov": lambda **kwargs: optimizers.SGD(0.05, momentum=0.8, nesterov=True, **kwargs),
    "adagrad": lambda **kwargs: optimizers.Adagrad(0.1, initial_accumulator_value=0.03, **kwargs),
    "adam": lambda **kwargs: optimizers.Adam(0.01, epsilon=1e-4, **kwargs),
    "amsgrad": lambda **kwargs: optimizers.Adam(0.01, amsgrad=True, **kwargs),
}
LAZY = ("adam", "amsgrad")  # equal the dense ones where a step touches every row


def small_model(embedding, length=4):
    """Embedding of `[batch, length]` ids, and one dense layer on top."""
    ids = tf_keras.Input([length], dtype="int64", name="ids")
    features = tf_keras.layers.Flatten()(embedding(ids))
    output = tf_keras.layers.Dense(
        1, "sigmoid", kernel_initializer=tf_keras.initializers.RandomUniform(-1, 1, seed=1)
    )(features)
    return tf_keras.Model(ids, output)


class Twins:
    """A dense and a tiered model with the same weights, trained on the same batches.

    Args:
      optimizer: makes one model's optimizer of tf_keras.
      wrap: what the tiered model makes of it.
      vocabulary, dim: size of the embedding.
      **compile_args: of both models' `compile`.
    """

    def __init__(
        self, optimizer, wrap=tf_hps.HPSOptimizer, vocabulary=30, dim=5, seed=3, **compile_args
    ):
        tf_keras.utils.set_random_seed(seed)
        self.random = np.random.default_rng(seed)
        self.vocabulary = vocabulary
        self.embedding = tf_keras.layers.Embedding(vocabulary, dim)
        self.layer = tf_hps.HPSEmbedding(vocabulary, dim)
        self.dense, self.tiered = small_model(self.embedding), small_model(self.layer)
        self.layer.table.upsert(np.arange(vocabulary), self.embedding.get_weights()[0])
        self.tiered.layers[-1].set_weights(self.dense.layers[-1].get_weights())
        self.dense.compile(optimizer(), "mse", **compile_args)
        self.tiered.compile(wrap(optimizer()), "mse", **compile_args)

    def batch(self, size=8, every_row=False):
        """Ids `[size, 4]` with duplicates, and targets `[size, 1]`."""
        ids = self.random.integers(0, self.vocabulary // 2, [size, 4])
        if every_row:
            ids = self.random.permutation(
                np.concatenate([np.arange(self.vocabulary), ids.ravel()[: 2 + self.vocabulary % 2]])
            )
            ids = ids[: len(ids) // 4 * 4].reshape(-1, 4)
            assert set(ids.ravel()) == set(range(self.vocabulary))
        assert len(np.unique(ids)) < ids.size
        return ids, self.random.uniform(size=[len(ids), 1]).astype(np.float32)

    def step(self, ids, targets):
        """Trains both on one batch; returns their losses."""
        return (
            self.dense.train_on_batch(ids, targets),
            self.tiered.train_on_batch(ids, targets),
        )

    def check_equal(self, rtol=2e-6, atol=2e-7):
        """Every row and every dense weight of both is the same."""
        rows = exported(self.layer.table)
        assert list(rows) == list(range(self.vocabulary))
        np.testing.assert_allclose(
            np.stack(list(rows.values())), self.embedding.get_weights()[0], rtol, atol
        )
        np.testing.assert_allclose(
            self.tiered.layers[-1].get_weights()[0],
            self.dense.layers[-1].get_weights()[0],
            rtol,
            atol,
        )

    def train_and_check(self, steps=12, every_row=False, rtol=2e-6, atol=2e-7):
        """Steps of training, compared after each: losses, rows, dense weights, iterations."""
        for step in range(1, steps + 1):
            dense_loss, tiered_loss = self.step(*self.batch(every_row=every_row))
            np.testing.assert_allclose(tiered_loss, dense_loss, rtol, atol)
            self.check_equal(rtol, atol)
            assert self.tiered.optimizer.iterations == step


def exported(table):
    """All rows of `table`: dict of key -> values, in the order of the keys."""
    rows = {}
    for keys, values in table.export(chunk_rows=7):
        rows.update(zip(keys.tolist(), values, strict=True))
    return rows


def slices(values, keys):
    """A gradient for a table."""
    return tf.IndexedSlices(tf.constant(values, tf.float32), tf.constant(keys, tf.int64))
