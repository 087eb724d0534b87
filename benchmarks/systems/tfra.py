"""TensorFlow Recommenders Addons: a CuckooHashTable, as its own Keras layer uses it."""

from importlib import metadata

from benchmarks.systems.keras import KerasSystem, optimizer_of  # isort: skip # sets up tf.keras
import tensorflow as tf
from tensorflow_recommenders_addons import dynamic_embedding as de

from benchmarks.workload import key_of, rows_of


class TfraSystem(KerasSystem):
    """Lookups for evaluation are deduplicated too, which is faster here than without.

    The initializer is a constant for the same reason: others make a row for each id looked
    up, needed or not. The table is made with room for all rows.
    """

    def describe(self):
        package = "tensorflow-recommenders-addons"
        return super().describe() | {package: metadata.version(package)}

    def _make(self, optimizer="adagrad"):
        self._layer = de.keras.layers.Embedding(
            self.dim,
            initializer=tf.keras.initializers.Zeros(),
            devices=["/CPU:0"],
            init_capacity=self.vocabulary,
        )
        self._optimizer = self._wrap(optimizer_of(optimizer))

    def _fill(self, index):
        self._layer.params.upsert(key_of(index), rows_of(index, self.dim))

    def compile(self):
        lookup = self._layer.params.lookup
        unique = de.shadow_ops.embedding_lookup_unique_base
        self._lookup = tf.function(lambda ids: unique(ids, self.dim, lookup))
        self._train_lookup = tf.function(self._layer)
        self._update = self._update_function(self._layer, self._optimizer)

    def _read(self, index):
        return self._layer.params.lookup(key_of(index)).numpy()

    def _wrap(self, optimizer):
        return de.DynamicEmbeddingOptimizer(optimizer)

    def _embed(self, ids):
        return self._layer(ids)


SYSTEM = TfraSystem
