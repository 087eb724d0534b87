"""Tables in TensorFlow's checkpoints and SavedModels, and in Keras's own files.

A checkpoint with the prefix `ckpt-1` and two tables is

    ckpt-1.index                    TensorFlow's index
    ckpt-1.data-00000-of-00002      TensorFlow's tensors
    ckpt-1.data-00001-of-00002      save ids of the tables
    ckpt-1.data-h0000-of-3kq9z      manifest of the files with that save id
    ckpt-1.data-h0001-of-3kq9z      rows, ...

Rows go from the engine to files and back, never through tensors. Each save has a new id
(one for each store, if the tables are in several), so overwriting a checkpoint leaves the
old one whole until its index is replaced. The names are such that TensorFlow deletes these
files with the checkpoint.
"""

import collections
import contextlib
import os
import re
import tempfile

import numpy as np
import tensorflow as tf
from tensorflow.python.saved_model import registration

from tf_hps import _ops
from tf_hps.store import Store
from tf_hps.table import Presence, Table

_SAVER = "tf_hps.tables"
_SAVE_ID = "tf_hps_save_id/"  # before a table's name: the name of its save id's tensor
_FILE = ".data-{number}-of-{save_id}"


def check_has_tables(path, name):
    """Raises if a checkpoint has no tables, so that restoring it would not restore `name`.

    Args:
      path: prefix of a checkpoint.
      name: what is to be restored, for the error.

    Raises:
      ValueError: if there are none.
    """
    if not _save_ids(path):
        raise ValueError(
            f"The checkpoint at '{path}' holds no tf_hps tables, so '{name}' cannot be restored "
            "from it: it was written by a model without HPSEmbedding layers, or before their build"
        )


def write_files(table, group):
    """Puts a table, its rows' state too, into a mapping of names to arrays, as an h5py group is.

    Args:
      table: a `Table`.
      group: mutable mapping; gets uint8 arrays.

    Raises:
      tf.errors.OpError: if the rows cannot be read or written out.
    """
    with tempfile.TemporaryDirectory(prefix="tf_hps_") as folder:
        prefix = os.path.join(folder, "table")
        save_id = _save_tables(prefix, {"table": table}).numpy().decode()
        for number, path in _files(prefix, save_id):
            group[number] = np.fromfile(path, np.uint8)
        group["save_id"] = np.frombuffer(save_id.encode(), np.uint8)


def read_files(table, group):
    """Replaces a table's rows by those that `write_files` put into a mapping.

    Args:
      table: a `Table` of the same dim.
      group: mapping of names to uint8 arrays.

    Raises:
      ValueError: if the mapping holds no table.
      tf.errors.OpError: if what it holds is damaged or of another dim; the table is unchanged.
    """
    if "save_id" not in group:
        raise ValueError(
            f"The file has no rows for {table!r}: it was not written by an HPSEmbedding"
        )
    save_id = np.asarray(group["save_id"]).tobytes().decode()
    with tempfile.TemporaryDirectory(prefix="tf_hps_") as folder:
        prefix = os.path.join(folder, "table")
        for number in group.keys() - {"save_id"}:
            np.asarray(group[number]).tofile(prefix + _FILE.format(number=number, save_id=save_id))
        _restore_tables(prefix, save_id, {"table": table})


def _save_tables(prefix, tables):
    """Writes the files of the tables and returns their save id, a string tensor."""
    with _ops.readable_errors():
        return _ops.ops.tf_hps_save_tables(
            prefix, list(tables), [table.handle for table in tables.values()]
        )


def _restore_tables(prefix, save_id, tables):
    """Replaces the rows of the tables by those in the files."""
    with _ops.readable_errors():
        _ops.ops.tf_hps_restore_tables(
            prefix, save_id, list(tables), [table.handle for table in tables.values()]
        )
    if tf.executing_eagerly():
        for table in tables.values():
            table._resource.read_layout()


def _save(trackables, file_prefix):
    """Called by TensorFlow when it saves a checkpoint.

    Args:
      trackables: dict of name in the checkpoint -> Table.
      file_prefix: string tensor: the checkpoint's prefix, "-" and the saver's name.

    Returns:
      Prefix of the shard with the save id, which TensorFlow merges into the checkpoint.
    """
    prefix = tf.strings.regex_replace(file_prefix, f"-{re.escape(_SAVER)}$", "")
    if tf.executing_eagerly():
        _remove_stale(prefix.numpy().decode())
    save_ids = {}
    for tables in _groups(trackables, lambda name: id(trackables[name].store)):
        save_ids.update(dict.fromkeys(tables, _save_tables(prefix, tables)))
    write = tf.raw_ops.SaveV2(
        prefix=file_prefix,
        tensor_names=[_SAVE_ID + name for name in save_ids],
        shape_and_slices=[""] * len(save_ids),
        tensors=list(save_ids.values()),
    )
    with tf.control_dependencies([] if write is None else [write]):
        return tf.identity(file_prefix)


def _restore(trackables, merged_prefix):
    """Called by TensorFlow when it restores tables, some of a checkpoint's or all.

    Args:
      trackables: dict of name in the checkpoint -> Table.
      merged_prefix: string tensor, the checkpoint's prefix.
    """
    if tf.executing_eagerly():
        check_has_tables(
            merged_prefix.numpy().decode(), ", ".join(t.name for t in trackables.values())
        )
    save_ids = tf.raw_ops.RestoreV2(
        prefix=merged_prefix,
        tensor_names=[_SAVE_ID + name for name in trackables],
        shape_and_slices=[""] * len(trackables),
        dtypes=[tf.string] * len(trackables),
    )
    save_ids = dict(zip(trackables, save_ids, strict=True))

    def group(name):  # as many as can be at once, so that all of them are checked first
        if not tf.executing_eagerly():
            return name
        return save_ids[name].numpy(), id(trackables[name].store)

    for tables in _groups(trackables, group):
        _restore_tables(merged_prefix, save_ids[next(iter(tables))], tables)


def _groups(tables, key):
    """Returns the parts of a dict of name -> Table whose names have equal keys."""
    groups = collections.defaultdict(dict)
    for name, table in tables.items():
        groups[key(name)][name] = table
    return list(groups.values())


def _remove_stale(prefix):
    """Removes files that an overwritten or unfinished save at `prefix` left."""
    with contextlib.suppress(tf.errors.OpError):  # an unreadable index names nothing: keep all
        current = _save_ids(prefix) if os.path.exists(prefix + ".index") else ()
        for _, path in _files(prefix, ".{5}", unless=current):
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)


def _save_ids(prefix):
    """Returns the set of the save ids that a checkpoint's index names."""
    reader = tf.train.load_checkpoint(prefix)
    names = [name for name in reader.get_variable_to_dtype_map() if name.startswith(_SAVE_ID)]
    return {reader.get_tensor(name).decode() for name in names}


def _files(prefix, save_id, unless=()):
    """Yields (number, path) of the tables' files with an id like `save_id`, a pattern."""
    folder, name = os.path.split(prefix)
    pattern = re.compile(re.escape(name) + rf"\.data-(h[0-9a-z]{{4}})-of-({save_id})")
    for file in sorted(os.listdir(folder or ".")) if os.path.isdir(folder or ".") else ():
        match = pattern.fullmatch(file)
        if match and match[2] not in unless:
            yield match[1], os.path.join(folder, file)


def _register():
    registration.register_checkpoint_saver(
        package="tf_hps",
        name="tables",
        predicate=lambda trackable: isinstance(trackable, Table),
        save_fn=_save,
        restore_fn=_restore,
    )
    for loadable in (Store, Table, Presence):
        registration.register_serializable(package="tf_hps")(loadable)


_register()
