"""tf_hps itself."""

import numpy as np
import tensorflow as tf

import tf_hps
from benchmarks import workload
from benchmarks.systems.keras import KerasSystem, optimizer_of

SLOTS = {"adagrad": 1, "adam": 2}


class TieredSystem(KerasSystem):
    """One table, or one for each feature, in a store."""

    def describe(self):
        return super().describe() | {"tf_hps": tf_hps.__version__}

    def populate(self, path, vocabulary, dim, optimizer, dram_bytes):
        """Makes a store of all rows with their state, and commits it."""
        self.vocabulary, self.dim = vocabulary, dim
        self._make(optimizer=optimizer, path=path, dram_bytes=dram_bytes)
        for index in workload.chunks(vocabulary):
            self._fill(index)
        self._store.close()

    def _make(self, layers=1, optimizer="adagrad", path=None, dram_bytes=None, fill=True):
        self._row_bytes = 4 * self.dim * (1 + SLOTS[optimizer])
        roomy = 64 * 2**20 + int(self.vocabulary * (1.3 * self._row_bytes + 48))
        self._store = tf_hps.Store(path, dram_bytes=dram_bytes or roomy)
        self._tables = [
            tf_hps.Table(f"rows_{i}", self.dim, self._store, initializer="zeros")
            for i in range(layers)
        ]
        self._layers = [
            tf_hps.HPSEmbedding(None, self.dim, table=table, name=f"embedding_{i}")
            for i, table in enumerate(self._tables)
        ]
        self._has_rows = not fill
        self._optimizer = self._wrap(optimizer_of(optimizer))
        for layer in self._layers:
            self._take_step(layer)

    def _take_step(self, layer):
        """Tells a table of its optimizer, so that rows are made with their state."""
        with tf.GradientTape() as tape:
            rows = layer(tf.constant([0]), training=True)
        gradient = tape.gradient(rows, layer.trainable_weights)
        self._optimizer.apply_gradients(zip(gradient, layer.trainable_weights, strict=True))
        layer.table.remove([0])

    def _of_tables(self, index):
        """Which of `index` belong to which table."""
        if len(self._tables) == 1:
            return [(self._tables[0], slice(None))]
        column = index // (self.vocabulary // workload.FEATURES)
        return [(table, np.flatnonzero(column == i)) for i, table in enumerate(self._tables)]

    def _fill(self, index):
        if self._has_rows:
            return
        for table, members in self._of_tables(index):
            part = index[members]
            table.upsert(workload.key_of(part), workload.rows_of(part, self.dim))

    def _read(self, index):
        rows = np.empty([len(index), self.dim], np.float32)
        for table, members in self._of_tables(index):
            rows[members] = table.lookup(workload.key_of(index[members])).numpy()
        return rows

    def _embed(self, ids):
        if len(self._layers) == 1:
            return self._layers[0](ids)
        columns = tf.unstack(ids, axis=1)
        pairs = zip(self._layers, columns, strict=True)
        return tf.stack([layer(column) for layer, column in pairs], axis=1)

    def compile(self):
        self._lookup = tf.function(self._look)
        self._train_lookup = tf.function(lambda ids: self._look(ids, training=True))
        if len(self._layers) == 1:
            self._update = self._update_function(self._layers[0], self._optimizer)

    def setup_fit(self, optimizer, prefetch=False):
        """As for others; `prefetch` says whether rows of coming batches come up ahead."""
        super().setup_fit(optimizer)
        self._prefetch = prefetch

    def _ahead(self, batches):
        if not self._prefetch:
            return super()._ahead(batches)
        return tf_hps.prefetch(batches, self._model, depth=2)

    def _look(self, ids, **options):
        if len(self._tables) == 1:
            return self._tables[0].lookup(ids, **options)
        columns = tf.unstack(ids, axis=1)
        return [
            table.lookup(column, **options)
            for table, column in zip(self._tables, columns, strict=True)
        ]

    def _wrap(self, optimizer):
        return tf_hps.HPSOptimizer(optimizer)

    def touch(self, ranks):
        """Brings the hottest rows into DRAM."""
        for chunk in workload.chunks(ranks):
            index = workload.index_of(chunk, self.vocabulary)
            self._tables[0].lookup(workload.key_of(index), training=True)

    def counters(self):
        """The table's counters, and the store's."""
        stats = self._store.stats()
        return {"store": stats["store"], **stats["tables"][self._tables[0].name]}

    def facts(self):
        stats = self._store.stats()["tables"].values()
        rows = sum(table["dram"]["rows"] for table in stats)
        return super().facts() | {
            "dram_rows": rows,
            "dram_bytes_per_row": sum(table["dram"]["bytes"] for table in stats) / max(rows, 1),
            "vector_and_state_bytes": self._row_bytes,
        }

    def reset(self):
        super().reset()
        store = self.__dict__.pop("_store", None)
        if store is not None:
            store.close(commit=False)
            del self._layers, self._tables, self._optimizer


SYSTEM = TieredSystem
