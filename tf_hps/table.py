"""Table: rows of one layout, in a store."""

import itertools
import json
import os
import weakref

import tensorflow as tf
from google.protobuf import wrappers_pb2
from tensorflow.python.eager import context
from tensorflow.python.trackable import base

from tf_hps import _ops, initializers
from tf_hps._inputs import any_int64, as_keys, as_values, flat_int64, positive_int
from tf_hps.store import _next_id, check_store, default_store, eager, load_config

_STORE = "tf_hps_store"  # name of a table's child in a SavedModel


class Table(tf.saved_model.experimental.TrackableResource):
    """Embedding rows by key, with their optimizer state, in memory and on SSD.

    Every int64 is a legal key. A key that was never trained or written reads as its
    initial row, which depends on the seed, the table's name and the key alone.

    >>> table = tf_hps.Table("user", 2, initializer="zeros")
    >>> table.upsert([1, 2], [[0.5, 1.0], [1.5, 2.0]])
    >>> table.lookup([[2, 3]]).numpy()
    array([[[1.5, 2. ],
            [0. , 0. ]]], dtype=float32)
    >>> table.size()
    2

    Args:
      name: the table's name within its store, a string. If the store has a table of
        that name, this object attaches to it: both are one table.
      dim: length of a row, an int from 1.
      store: the `Store` it lives in; None: the process's `default_store()`.
      initializer: where initial rows come from: a name ("uniform", "normal",
        "truncated_normal", "zeros", "ones", ...) or a tf_keras initializer of such a
        kind, with its arguments.
      seed: int, of the initial rows.

    Raises:
      ValueError: if an argument cannot be used.
      tf.errors.InvalidArgumentError: if the store has a table of that name with another
        dim, initializer or seed.
    """

    def __init__(self, name, dim, store=None, initializer="uniform", seed=0):
        super().__init__(device="CPU:0")
        if not isinstance(name, str) or not name:
            raise ValueError(
                f"name: expected a string of one character or more. Received: {name!r}"
            )
        check_store(store)
        store = default_store() if store is None else store
        layout = {
            "dim": positive_int(dim, "dim"),
            "initializer": initializers.to_spec(initializer),
            "seed": any_int64(seed, "seed"),
        }
        self._open(store, name, layout)

    @classmethod
    def _for_layer(cls, name, dim, store, initializer, seed):
        """Returns a layer's own table.

        In a store with a path that is the table called `name`. A temporary store may
        see many models with layers of equal names, so there each gets a table of its own,
        under a name that is free ("name", "name-2", ...), with the initial rows of `name`;
        it ends with its last user.
        """
        store = default_store() if store is None else store
        if not store.temporary:
            return cls(name, dim, store, initializer, seed)
        taken = store._layouts()
        names = itertools.chain([name], (f"{name}-{i}" for i in itertools.count(2)))
        free = next(candidate for candidate in names if candidate not in taken)
        store._table_resources[free] = resource = TableResource(
            store,
            free,
            int(dim),
            initializers.to_spec(initializer),
            int(seed),
            salt=name,
            drop=True,
        )
        return cls(resource.name, dim, store, initializer, seed)

    def _open(self, store, name, layout):
        resource = store._table_resources.get(name)
        if resource is None:
            resource = TableResource(store, name, **layout)
            store._table_resources[name] = resource
        resource.check_layout(layout)
        self._resource = resource
        self._resource_handle = resource.handle
        self._anchor = None  # made by tf_hps.anchor at its first need
        self._track_trackable(Presence(), "presence")

    @property
    def name(self):
        """The table's name within its store, a string."""
        return self._resource.name

    @property
    def dim(self):
        """Length of a row, an int."""
        return self._resource.layout["dim"]

    @property
    def store(self):
        """The `Store` that the table is in."""
        return self._resource.store

    @property
    def handle(self):
        """The resource tensor, as the ops take it."""
        return self.resource_handle

    def lookup(self, keys, training=False):
        """Returns the rows of `keys`. (`HPSEmbedding(table=...)` is what trains them.)

        Args:
          keys: int32 or int64, any shape `[...]`: a tensor, an array, or a list of ints.
          training: whether to create the rows of unseen keys and count the use of
            all. Otherwise nothing changes, and unseen keys read as their initial rows.

        Returns:
          float32 tensor `[..., dim]`.

        Raises:
          TypeError: if `keys` are no int32 or int64.
          tf.errors.OpError: if rows cannot be read back from SSD, naming the path.
        """
        op = _ops.ops.tf_hps_lookup_or_create if training else _ops.ops.tf_hps_lookup
        with _ops.readable_errors():
            return op(self.handle, as_keys(keys), anchor=0.0, dim=self.dim)

    def upsert(self, keys, values):
        """Sets the rows of `keys`, of equal ones the last. A row's optimizer state stays.

        Any values are stored as they are, NaN and infinity too.

        Args:
          keys: int32 or int64, any shape `[...]`.
          values: float32, `[..., dim]`.

        Raises:
          TypeError: if `keys` are no int32 or int64, or `values` no float32.
          ValueError: if the shapes do not fit each other.
        """
        keys = as_keys(keys)
        values = as_values(values)
        expected = keys.shape.concatenate(self.dim)
        if not values.shape.is_compatible_with(expected):
            raise ValueError(
                f"values: expected shape {expected}, that of the keys and the table's dim "
                f"{self.dim}. Received: {values.shape}"
            )
        with _ops.readable_errors():
            _ops.ops.tf_hps_upsert(
                self.handle, flat_int64(keys), tf.reshape(values, [-1, self.dim])
            )

    def remove(self, keys):
        """Removes the rows of `keys` with their optimizer state; keys without one are no error.

        Args:
          keys: int32 or int64, any shape.

        Raises:
          TypeError: if `keys` are no int32 or int64.
        """
        with _ops.readable_errors():
            _ops.ops.tf_hps_remove(self.handle, flat_int64(as_keys(keys)))

    def contains(self, keys):
        """Tells which keys have a row of their own: trained or written, and not removed.

        >>> table = tf_hps.Table("genre", 3)
        >>> table.upsert([-5], np.zeros([1, 3]))
        >>> table.contains([-5, 5])
        array([ True, False])

        Args:
          keys: int32 or int64, any shape `[...]`.

        Returns:
          bool array `[...]`; in a `tf.function` a tensor.

        Raises:
          TypeError: if `keys` are no int32 or int64.
        """
        with _ops.readable_errors():
            found = _ops.ops.tf_hps_contains(self.handle, tf.cast(as_keys(keys), tf.int64))
        return found.numpy() if tf.executing_eagerly() else found

    def size(self):
        """Returns the number of rows on all tiers: int, in a `tf.function` an int64 tensor."""
        with _ops.readable_errors():
            size = _ops.ops.tf_hps_size(self.handle)
        return int(size) if tf.executing_eagerly() else size

    def export(self, chunk_rows=65536, *, state=False):
        """Returns the rows as they are now, by ascending key, in chunks.

        Later changes do not show. Rows that only exist as initial rows are not among them.

        >>> table = tf_hps.Table("city", 2)
        >>> table.upsert([3, -1], [[1, 2], [3, 4]])
        >>> for keys, values in table.export():
        ...     print(keys, values.tolist())
        [-1  3] [[3.0, 4.0], [1.0, 2.0]]

        Args:
          chunk_rows: the most rows in a chunk.
          state: whether to give the rows' optimizer state too.

        Returns:
          Iterator of `(keys, values)`, or of `(keys, values, state)`, numpy arrays: int64
          `[n]`, float32 `[n, dim]` and float32 `[n, slots * dim]`, the slots one after another
          (momentum; accumulator; Adam's m and v, and vhat with AMSGrad; 0 before any training).

        Raises:
          ValueError: if `chunk_rows` is no positive int.
        """
        chunk_rows = positive_int(chunk_rows, "chunk_rows")
        with eager(), _ops.readable_errors():
            iterator = _ops.ops.tf_hps_export_begin(self.handle)
        return self._chunks(iterator, chunk_rows, 3 if state else 2)

    def _chunks(self, iterator, chunk_rows, columns):
        while True:
            with eager(), _ops.readable_errors():
                chunk = _ops.ops.tf_hps_export_next(iterator, chunk_rows, dim=self.dim)
            if not chunk[0].shape[0]:
                return
            yield tuple(column.numpy() for column in chunk[:columns])

    def __repr__(self):
        return f"<tf_hps.Table '{self.name}' dim={self.dim} in {self.store!r}>"

    def get_config(self):
        """Layout of the table: the layers of a loaded model that shared it share one again."""
        salt = self._resource._attributes["salt"]
        return {"name": salt or self.name, **self._resource.layout}

    @classmethod
    def from_config(cls, config):
        """Makes a table of that layout in the default store, without rows."""
        return cls._for_layer(store=None, **config)

    # Saving: tf_hps.checkpoint registers how rows go into checkpoints. In a SavedModel's
    # graph the table is made empty, in a temporary store, and filled by that restore.

    def _create_resource(self):
        return self._resource.create(self.store._create_resource())

    def _export_to_saved_model_graph(self, tensor_map, **unused_kwargs):
        tensor_map[self.handle] = self._resource.create(tensor_map[self.store.handle])
        return [self.handle]

    def _trackable_children(self, save_type=base.SaveType.CHECKPOINT, **kwargs):
        children = super()._trackable_children(save_type, **kwargs)
        if save_type == base.SaveType.SAVEDMODEL:
            children[_STORE] = self.store
        return children

    def _deserialization_dependencies(self, children):
        return {_STORE: children[_STORE]}

    def _lookup_dependency(self, name, *args, **kwargs):
        return self.store if name == _STORE else super()._lookup_dependency(name, *args, **kwargs)

    def _serialize_to_proto(self, **unused_kwargs):
        config = {"name": self.name, **self._resource.layout}
        return wrappers_pb2.StringValue(value=json.dumps(config))

    @classmethod
    def _deserialize_from_proto(cls, proto, dependencies, **unused_kwargs):
        return cls(store=dependencies[_STORE], **load_config(proto))

    def _add_trackable_child(self, name, value):
        """Takes the loaded SavedModel's presence; it has its own resource functions and store."""
        if name == "presence":
            self._track_trackable(value, name, overwrite=True)


class TableResource:
    """An engine table's handle, one for all `Table`s of that name and store.

    One, because a `tf.function` keeps the order of changes by handle.

    Args:
      store, name, dim, initializer, seed: see `Table`.
      salt: what initial rows depend on in the name's place; "" for the name.
      drop: whether the rows end with the last user.
    """

    def __init__(self, store, name, dim, initializer, seed, salt="", drop=False):
        self.store = store
        self.name = name
        self.layout = {"dim": dim, "initializer": initializer, "seed": seed}
        self._attributes = {
            "table_name": name,
            "salt": salt,
            "shared_name": f"tf_hps_table_{_next_id()}",
        }
        with eager(), _ops.readable_errors(), tf.device("CPU:0"):
            self.handle = self.create(store._open_handle())
            self.handle._tf_hps_lifetime = _Lifetime(store, tf.identity(self.handle), drop)

    def create(self, store_handle):
        """Returns a table handle in the store of `store_handle`, in the graph that is current."""
        return _ops.ops.tf_hps_table_handle(store_handle, **self._attributes, **self.layout)

    def read_layout(self):
        """Reads what the engine has for the layout; a restore replaces initializer and seed."""
        self.layout = self.store._layouts()[self.name]

    def check_layout(self, layout):
        """Raises InvalidArgumentError if the table is another one."""
        if layout != self.layout:
            raise tf.errors.InvalidArgumentError(
                None,
                None,
                f"The store at '{self.store.path}' has a table '{self.name}' with "
                f"{_show(self.layout)}. Received: {_show(layout)}. Give the table's own layout, "
                "or another name",
            )


class _Lifetime:
    """Part of a handle: keeps the store alive, and frees the table when the handle dies.

    Functions capture handles, so a handle may outlive every `Table`. It must not lead back
    to itself: cycles through eager tensors are collected late.

    Args:
      store: the table's `Store`.
      handle: another tensor of the resource, which does not keep this object alive.
      drop: see `TableResource`.
    """

    def __init__(self, store, handle, drop):
        self.store = store
        release = weakref.finalize(self, _release, handle, drop, store._finalizer, os.getpid())
        release.atexit = False  # when the process ends, closing the stores is enough


class Presence(base.Trackable):
    """Makes a table visible to `assert_consumed` and `assert_existing_objects_matched`.

    They look at objects with tensors only, and would pass over a table that a
    checkpoint or a program lacks.
    """

    def _serialize_to_tensors(self):
        return {"present": tf.constant(True)}

    def _restore_from_tensors(self, restored_tensors):
        del restored_tensors  # that they were found is all

    def _copy_trackable_to_cpu(self, object_map):
        raise ValueError(
            "Asynchronous checkpoints do not work with tf_hps tables: rows would be saved as of "
            "a later step than the dense weights. Use CheckpointOptions without "
            "experimental_enable_async_checkpoint"
        )

    def _serialize_to_proto(self, **unused_kwargs):
        return None

    @classmethod
    def _deserialize_from_proto(cls, **unused_kwargs):
        return cls()


def _release(handle, drop, store_finalizer, process):
    """Frees a table handle whose users are gone."""
    if os.getpid() != process:
        return  # a fork: the table is its parent's
    with context.eager_mode():  # whatever graph is being built where garbage is collected
        if drop and store_finalizer.alive:
            _ops.ops.tf_hps_table_drop(handle)
        tf.raw_ops.DestroyResourceOp(resource=handle, ignore_lookup_error=True)


def _show(layout):
    return ", ".join(f"{key} {value}" for key, value in layout.items())
