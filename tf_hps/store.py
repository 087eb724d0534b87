"""Store: a directory on SSD, its memory budgets, and the tables in it."""

import json
import numbers
import os
import re
import threading
import warnings
import weakref

import tensorflow as tf
from google.protobuf import wrappers_pb2
from tensorflow.python.eager import context

from tf_hps import _ops
from tf_hps._bytes import parse_bytes
from tf_hps._inputs import positive_int

_EVICTIONS = ("lfu", "lru")


class Store(tf.saved_model.experimental.TrackableResource):
    """One directory on SSD and the memory budgets, shared by its tables.

    Rows live on SSD in LevelDB; as many as the budgets hold are kept in host memory
    as well, the hot ones first. One process owns a store at a time. A store opened
    at a path is at its last commit, and a process that ends without `close` leaves
    it there.

    >>> with tf_hps.Store(dram_bytes="64MiB") as store:
    ...     table = tf_hps.Table("user", 4, store=store)
    ...     table.upsert([7, 9], np.ones([2, 4]))
    ...     store.commit(), list(store.tables), table.size()
    (1, ['user'], 2)

    Args:
      path: directory, made if it does not exist. None: a temporary one, removed when
        the store is closed, dies or the process ends.
      dram_bytes: host memory for rows, their optimizer state and index included. An int,
        or a string such as "8GiB" or "512MB".
      hbm_bytes: GPU memory for rows, likewise. This release has no such tier: 0.
      eviction: which rows leave memory first: "lfu" (the least frequently used) or
        "lru" (the least recently used).
      keep_commits: how many of the last commits stay on SSD, an int from 1. Commits share
        the files of rows that did not change. The store remembers it with its next commit;
        None: as many as it remembers, 1 if it is new.
      commit: the commit to open at, one of `commits`; None: the last. What was committed
        after it stays until `keep_commits` later ones have been made.

    Raises:
      ValueError: if a budget or `eviction` cannot be understood.
      tf.errors.OpError: if the store cannot be opened: its path cannot be written, is in use
        (in this or another process), is damaged, or belongs to something else. The
        message names the path. `tf-hps verify` names each file that is damaged.
    """

    # Whether lookups outside training keep in memory what they read.
    _cache_reads = False

    def __init__(
        self,
        path=None,
        dram_bytes="2GiB",
        hbm_bytes=0,
        eviction="lfu",
        *,
        keep_commits=None,
        commit=None,
    ):
        super().__init__(device="CPU:0")
        if eviction not in _EVICTIONS:
            raise ValueError(f"eviction: expected one of {_EVICTIONS}. Received: {eviction!r}")
        self._options = {
            "dram_bytes": parse_bytes(dram_bytes, "dram_bytes"),
            "hbm_bytes": parse_bytes(hbm_bytes, "hbm_bytes"),
            "eviction": eviction,
        }
        self._temporary = path is None
        self._process = os.getpid()
        self._table_resources = weakref.WeakValueDictionary()  # name -> TableResource
        self._shared_name = f"tf_hps_store_{_next_id()}"  # equal names would alias one store
        with eager(), _ops.readable_errors(), tf.device("CPU:0"):
            self._resource_handle = _ops.ops.tf_hps_store_handle(
                path="" if path is None else _local_path(path),
                cache_reads=self._cache_reads,
                keep_commits=0
                if keep_commits is None
                else positive_int(keep_commits, "keep_commits"),
                commit=0 if commit is None else positive_int(commit, "commit"),
                shared_name=self._shared_name,
                **self._options,
            )
            self._path = _ops.ops.tf_hps_store_path(self.handle).numpy().decode()
            # Another tensor of the resource: the finalizer must not keep `handle` alive.
            self._finalizer = weakref.finalize(
                self,
                _close_forgotten,
                tf.identity(self.handle),
                None if path is None else self._path,
                os.getpid(),
            )

    @property
    def handle(self):
        """The resource tensor, as the ops take it."""
        return self.resource_handle

    @property
    def path(self):
        """The directory, a string."""
        return self._path

    @property
    def temporary(self):
        """Whether the directory is removed when the store is closed."""
        return self._temporary

    @property
    def closed(self):
        """Whether `close` was called."""
        return not self._finalizer.alive

    @property
    def tables(self):
        """The tables in this store, former processes' too: a dict of name -> `Table`."""
        from tf_hps.table import Table

        return {
            name: Table(name, layout["dim"], self, layout["initializer"], layout["seed"])
            for name, layout in self._layouts().items()
        }

    def _layouts(self):
        """Returns a dict of name -> dict of dim, initializer and seed."""
        with eager(), _ops.readable_errors():
            names, dims, initializers, seeds, _ = _ops.ops.tf_hps_store_tables(self._open_handle())
        columns = (names.numpy(), dims.numpy(), initializers.numpy(), seeds.numpy())
        return {
            name.decode(): {"dim": int(dim), "initializer": initializer.decode(), "seed": int(seed)}
            for name, dim, initializer, seed in zip(*columns, strict=True)
        }

    def commit(self):
        """Makes the present state of all tables durable: what a killed process reopens at.

        In a store that was opened at an older `commit`, this makes that one's state the last.

        Returns:
          The commit's number, an int that grows by 1.

        Raises:
          tf.errors.OpError: if writing fails, naming the path. A killed process then reopens at
            the former commit, or at this one if it was in its place already.
        """
        with eager(), _ops.readable_errors():
            return int(_ops.ops.tf_hps_store_commit(self._open_handle()))

    @property
    def commits(self):
        """Numbers of the commits that the store can be opened at, a list of ints, ascending."""
        with eager(), _ops.readable_errors():
            return _ops.ops.tf_hps_store_commits(self._open_handle()).numpy().tolist()

    @property
    def dense_step(self):
        """The optimizer's `iterations` after the last update of tables here, an int.

        A commit holds it: a store reopened after a crash says how far the rows are trained,
        so that dense weights of the same step can be put beside them.
        """
        return self.stats()["store"]["dense_step"]

    def stats(self):
        """Returns counters since the store was opened.

        >>> store = tf_hps.Store()
        >>> table = tf_hps.Table("item", 2, store=store)
        >>> table.upsert([1, 2, 3], np.zeros([3, 2]))
        >>> store.stats()["tables"]["item"]["dram"]["rows"]
        3

        Returns:
          A nested dict: `["tables"][name][tier]` has hits, misses, inserts, evictions,
          rows and bytes of each tier ("dram", "ssd"), for "dram" also rows prefetched;
          `["store"]` has bytes read and written, bytes in write buffers that wait to be put into
          files, and seconds per stage. Numbers are ints, seconds are floats.

          An id that is looked up is a hit of "dram" if its row is there. Of those that are
          not, each distinct one of a batch is a miss and goes on to "ssd", where it is a hit
          or, as a new row, a miss; its repetitions are hits of "dram". A row that
          `tf_hps.prefetch` brought up in time is a hit of "dram" like any other.
        """
        with eager(), _ops.readable_errors():
            names, values = _ops.ops.tf_hps_store_stats(self._open_handle())
        result = {"store": {}, "tables": {name: {} for name in self._layouts()}}
        for name, value in zip(names.numpy(), values.numpy(), strict=True):
            _put(result, name.decode(), float(value))
        return result

    def close(self, commit=True):
        """Ends the store: memory is freed, the directory can be opened again. Twice is once.

        In a fork of the process that opened the store this does nothing to it.

        Args:
          commit: whether to `commit` first, if anything has changed since the last commit or since
            the store was opened. A temporary store's directory is removed instead.

        Raises:
          tf.errors.OpError: if committing fails; the store is open then as before.
        """
        if self.closed:
            return
        if os.getpid() != self._process:  # a fork, which ends: the store is its parent's
            self._finalizer.detach()
            return
        with _ops.readable_errors():
            _close(self.handle, commit and not self._temporary)
        self._finalizer.detach()

    def _open_handle(self):
        if self.closed:
            again = "" if self._temporary else f"; open it again: tf_hps.Store('{self._path}')"
            raise ValueError(f"The store at '{self._path}' is closed{again}")
        return self.handle

    def __enter__(self):
        return self

    def __exit__(self, error_type, error, traceback):
        self.close(commit=error_type is None)

    def __repr__(self):
        state = " (closed)" if self.closed else " (temporary)" if self._temporary else ""
        return f"<tf_hps.Store at '{self._path}'{state}>"

    # A SavedModel holds tables, no store: where it is loaded or served, its tables share
    # a temporary one. `_create_resource` makes it in an exported graph.

    def _create_resource(self):
        return _ops.ops.tf_hps_store_handle(
            path="", cache_reads=True, shared_name=self._shared_name, **self._options
        )

    def _export_to_saved_model_graph(self, tensor_map, **unused_kwargs):
        tensor_map[self.handle] = self._create_resource()
        return [self.handle]

    def _serialize_to_proto(self, **unused_kwargs):
        return wrappers_pb2.StringValue(value=json.dumps(self._options))

    @classmethod
    def _deserialize_from_proto(cls, proto, **unused_kwargs):
        return _ServingStore(path=None, **load_config(proto))

    def _add_trackable_child(self, name, value):
        """Ignores the exported functions of a loaded SavedModel: this object has its own."""


class _ServingStore(Store):
    """The temporary store of a loaded SavedModel, whose rows nothing else brings into memory."""

    _cache_reads = True


def eager():
    """Returns a context that runs ops at once, also while a tf.function is traced."""
    if not tf.executing_eagerly() and not tf.inside_function():
        raise RuntimeError(
            "tf_hps needs eager execution; tf.Graph and tf.compat.v1.Session are not supported"
        )
    return tf.init_scope()


def load_config(proto):
    """Returns the dict that a `_serialize_to_proto` here wrote into a SavedModel."""
    text = wrappers_pb2.StringValue()
    proto.Unpack(text)
    return json.loads(text.value)


_ids = iter(range(2**63))
_default = None
_default_lock = threading.RLock()


def _next_id():
    """Returns a number that no other call in this process returns."""
    return f"{os.getpid()}_{next(_ids)}"


def check_store(store):
    """Raises TypeError if `store` is neither a Store nor None."""
    if store is not None and not isinstance(store, Store):
        raise TypeError(
            f"store: expected a tf_hps.Store, such as tf_hps.Store('directory'), or None. "
            f"Received: {store!r}"
        )


def default_store():
    """Returns the process's store: where tables live that are given no other.

    It is temporary and has the default budgets, unless `set_default_store` gave another.
    """
    global _default
    with _default_lock:
        if _default is None or _default.closed:
            _default = Store()
        return _default


def set_default_store(store):
    """Makes `store` the one for tables that are given none; those made before stay where they are.

    Args:
      store: an open `Store`, or None for a new temporary one at the next need.

    Raises:
      TypeError: if it is no `Store`.
    """
    global _default
    check_store(store)
    with _default_lock:
        _default = store


_BYTES = r"(?i)\s*\d[\d.]*\s*[kmgt]i?b\s*"  # what was meant for a budget


def _local_path(path):
    """Returns `path` as a string; refuses what is no directory of this machine."""
    if isinstance(path, numbers.Integral) or (isinstance(path, str) and re.fullmatch(_BYTES, path)):
        raise ValueError(
            f"path: expected a directory, or None. Received: {path!r}, a number of bytes: "
            f"Store(dram_bytes={path!r}) sets the budget (./{path} is a directory)"
        )
    path = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(path, str) or not path or "://" in path or "\0" in path:
        raise ValueError(f"path: expected a directory on a local disk, or None. Received: {path!r}")
    return os.path.abspath(os.path.expanduser(path))


def _put(result, name, value):
    """Puts a counter such as "tables/user/dram/hits" into the nested dict."""
    keys = name.split("/")
    if keys[0] == "tables":  # a table's name may have slashes itself
        table = max(
            (t for t in result["tables"] if name.startswith(f"tables/{t}/")),
            key=len,
            default=keys[1],
        )
        keys = ["tables", table, *name[len(f"tables/{table}/") :].split("/")]
    for key in keys[:-1]:
        result = result.setdefault(key, {})
    result[keys[-1]] = value if "seconds" in name else int(value)


def _close(handle, commit):
    with context.eager_mode():
        _ops.ops.tf_hps_store_close(handle, commit=commit)
        tf.raw_ops.DestroyResourceOp(resource=handle, ignore_lookup_error=True)


def _close_forgotten(handle, path, process):
    """Closes a store that nothing refers to any more, or that is open when the process ends."""
    if os.getpid() != process:
        return  # a fork: the store is its parent's
    if path is not None:
        warnings.warn(
            f"The store at '{path}' was not closed: it stays at its last commit, and what changed "
            "since is lost. Close it, commit, or use it in a `with` statement",
            RuntimeWarning,
            stacklevel=2,
        )
    _close(handle, commit=False)
