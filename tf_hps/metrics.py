"""TierMetrics: what the tiers do, among the metrics that a training shows."""

import time

import tf_keras

from tf_hps.embedding import HPSEmbedding
from tf_hps.store import check_store, default_store

_COUNTERS = {  # of both tiers together: name -> (tier, counter)
    "dram_hits": ("dram", "hits"),
    "dram_misses": ("dram", "misses"),
    "prefetched": ("dram", "prefetched"),
    "evictions": ("dram", "evictions"),
    "ssd_hits": ("ssd", "hits"),
    "ssd_misses": ("ssd", "misses"),
    "ssd_writes": ("ssd", "writes"),
}


class TierMetrics(tf_keras.callbacks.Callback):
    """Adds what the tiers do to the logs of `fit`: progress bar, `History`, TensorBoard and others.

    >>> model = tf_keras.Sequential([tf_hps.HPSEmbedding(None, 4), tf_keras.layers.Dense(1)])
    >>> model.compile(tf_hps.HPSOptimizer(tf_keras.optimizers.SGD()), "mse")
    >>> callbacks = [tf_hps.TierMetrics()]
    >>> history = model.fit(np.arange(64), np.ones([64, 1]), callbacks=callbacks, verbose=0).history
    >>> history["new_rows"], history["dram_hit_rate"]
    ([32.0], [0.0])

    Callbacks see the logs in their order: put it before `TensorBoard` and `CSVLogger`.

    While an epoch goes on, `dram_hit_rate` and `ssd_rows` are shown, of the batches since the last
    time. At the end of an epoch there are, of all its batches:

    | name | what |
    |---|---|
    | `dram_hit_rate` | the part of the ids whose row was in memory, 0 to 1 |
    | `ssd_rows` | rows that a batch waited for while they were read from SSD |
    | `new_rows` | rows that a batch made |
    | `prefetched_rows` | rows of a batch that `tf_hps.prefetch` brought up |
    | `evicted_rows`, `written_rows` | rows that left memory, and that were written to SSD |
    | `read_mib`, `written_mib` | of SSD traffic for a batch, what LevelDB rewrites among it |
    | `unwritten_mib` | in LevelDB's buffers at the end of the epoch, still to be put into files |
    | `dram_mib` | that rows take in memory at the end of the epoch |
    | `seconds_read`, ... | of a batch's time, of all threads together, in each stage |

    All but the rate, `unwritten_mib` and `dram_mib` are per batch. Evaluation that goes on at the
    same time, in another thread or for another model of the store, counts too.

    Args:
      store: the `Store` to watch, or a list of them. None: those of the model's layers.
      seconds: between two looks while an epoch goes on. A look takes some microseconds for each
        table and stops nothing.

    Raises:
      TypeError: if `store` is none of these.
      ValueError: when training begins, if there is no store to watch.
    """

    def __init__(self, store=None, seconds=0.5):
        super().__init__()
        self._supports_tf_logs = True  # reads none, so that no other batch has to wait for them
        self._given = list(store) if isinstance(store, (list, tuple)) else [store] if store else []
        for each in self._given:
            check_store(each)
        self._seconds = seconds

    def on_train_begin(self, logs=None):
        """Finds the stores."""
        self._stores = self._given or self._stores_of_model()
        if not self._stores:
            raise ValueError(
                f"TierMetrics: model '{self.model.name}' has no HPSEmbedding layer whose store "
                "could be watched; give the store: TierMetrics(store)"
            )

    def _stores_of_model(self):
        layers = [each for each in self.model._flatten_layers() if isinstance(each, HPSEmbedding)]
        stores = {}
        for layer in layers:
            store = layer.table.store if layer.built else layer._store or default_store()
            stores[id(store)] = store
        return list(stores.values())

    def on_epoch_begin(self, epoch, logs=None):
        """Takes the counters that the epoch starts from."""
        self._first = self._last = self._look()
        self._batches = 0
        self._shown = {}
        self._next = 0.0

    def on_train_batch_end(self, batch, logs=None):
        """Adds what is shown while an epoch goes on."""
        self._batches = batch + 1  # with steps_per_execution there are several between two calls
        if time.monotonic() >= self._next:
            now = self._look()
            figures = _figures(self._last, now, self._batches - self._last["batches"])
            self._shown = {name: figures[name] for name in ("dram_hit_rate", "ssd_rows")}
            self._last = now
            self._next = time.monotonic() + self._seconds
        if logs is not None:
            logs.update(self._shown)

    def on_epoch_end(self, epoch, logs=None):
        """Adds the figures of the epoch."""
        if logs is not None:
            logs.update(_figures(self._first, self._look(), self._batches))

    def _look(self):
        """Returns counters: of all stores together, and by store and table."""
        look = {"batches": getattr(self, "_batches", 0), "stores": {}, "tables": {}}

        def add(name, value):
            look["stores"][name] = look["stores"].get(name, 0) + value

        for i, store in enumerate(self._stores):
            stats = store.stats()
            for name in ("bytes_read", "bytes_written", "dram_bytes", "unwritten_bytes"):
                add(name, stats["store"][name])
            for stage, seconds in stats["store"]["seconds"].items():
                add(f"seconds_{stage}", seconds)
            for table, tiers in stats["tables"].items():
                look["tables"][i, table] = {
                    name: tiers[tier][counter] for name, (tier, counter) in _COUNTERS.items()
                }
        return look


def _grown(before, after):
    """Returns by how much counters have grown. Tables come and go: only those there are count."""
    grown = {name: now - before["stores"].get(name, 0) for name, now in after["stores"].items()}
    grown |= dict.fromkeys(_COUNTERS, 0)
    for table, counters in after["tables"].items():
        former = before["tables"].get(table, {})
        if any(now < former.get(name, 0) for name, now in counters.items()):
            former = {}  # another table of that name
        for name, now in counters.items():
            grown[name] += now - former.get(name, 0)
    return grown


def _figures(before, after, batches):
    """Returns what the logs get, a dict of floats, of counters before and after `batches`."""
    grown = _grown(before, after)
    batches = max(batches, 1)
    ids = grown["dram_hits"] + grown["dram_misses"]
    figures = {
        "dram_hit_rate": grown["dram_hits"] / ids if ids else 0.0,
        "ssd_rows": grown["ssd_hits"] / batches,
        "new_rows": grown["ssd_misses"] / batches,
        "prefetched_rows": grown["prefetched"] / batches,
        "evicted_rows": grown["evictions"] / batches,
        "written_rows": grown["ssd_writes"] / batches,
        "read_mib": grown["bytes_read"] / batches / 2**20,
        "written_mib": grown["bytes_written"] / batches / 2**20,
        "unwritten_mib": after["stores"]["unwritten_bytes"] / 2**20,
        "dram_mib": after["stores"]["dram_bytes"] / 2**20,
    }
    return figures | {
        name: value / batches for name, value in grown.items() if name.startswith("seconds_")
    }
