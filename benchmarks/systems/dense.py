"""`tf_keras.layers.Embedding`: a dense matrix, and optimizers that know of no tiers."""

import numpy as np
import tensorflow as tf
import tf_keras

from benchmarks.systems.keras import KerasSystem, optimizer_of
from benchmarks.workload import rows_of


class DenseSystem(KerasSystem):
    """Ids are row numbers: it needs no hashing."""

    def _ids(self, index):
        return index

    def _make(self, optimizer="adagrad"):
        self._layer = tf_keras.layers.Embedding(self.vocabulary, self.dim)
        self._layer.build(None)
        self._optimizer = optimizer_of(optimizer)
        self._rows = np.empty([self.vocabulary, self.dim], np.float32)

    def _fill(self, index):
        self._rows[index] = rows_of(index, self.dim)

    def compile(self):
        self._layer.embeddings.assign(self._rows)
        del self._rows
        self._lookup = tf.function(self._layer)
        self._train_lookup = self._lookup
        self._update = self._update_function(self._layer, self._optimizer)

    def _read(self, index):
        return self._layer(index).numpy()

    def _embed(self, ids):
        return self._layer(ids)

    def reset(self):
        super().reset()
        self.__dict__.clear()


SYSTEM = DenseSystem
