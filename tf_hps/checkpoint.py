"""Tables in TensorFlow's checkpoints and SavedModels, and in Keras's own files.

A checkpoint with the prefix `ckpt-1` and two tables is

    ckpt-1.index                    TensorFlow's index, which names the save id
    ckpt-1.data-00000-of-00002      TensorFlow's tensors
    ckpt-1.data-00001-of-00002      the save id
    ckpt-1.data-h0000-of-3kQ9z      manifest of the tables' files
    ckpt-1.data-h0001-of-3kQ9z      rows, ...

Rows go from the engine to files and back, never through tensors. Each save has a new id,
so overwriting a checkpoint leaves the old one whole until its index is replaced. The
names are such that TensorFlow deletes these files with the checkpoint.
"""

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
_SAVE_ID = "tf_hps/save_id"  # name of the id's tensor in a checkpoint
_FILE = ".data-{number}-of-{save_id}"


def check_has_tables(path, name):
    """Raises if a checkpoint has no tables, so that restoring it would not restore `name`.

    Args:
      path: prefix of a checkpoint.
      name: what is to be restored, for the error.

    Raises:
      ValueError: if there are none.
    """
    if not tf.train.load_checkpoint(path).has_tensor(_SAVE_ID):
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
    save_id = _save_tables(prefix, trackables)
    write = tf.raw_ops.SaveV2(
        prefix=file_prefix, tensor_names=[_SAVE_ID], shape_and_slices=[""], tensors=[save_id]
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
    save_id = tf.raw_ops.RestoreV2(
        prefix=merged_prefix, tensor_names=[_SAVE_ID], shape_and_slices=[""], dtypes=[tf.string]
    )[0]
    _restore_tables(merged_prefix, save_id, trackables)


def _remove_stale(prefix):
    """Removes files that an overwritten or unfinished save at `prefix` left."""
    with contextlib.suppress(tf.errors.OpError):  # an unreadable index names nothing: keep all
        current = _current_save_id(prefix)
        for _, path in _files(prefix, ".{5}", unless=current):
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)


def _current_save_id(prefix):
    """Returns the id that the checkpoint's index names, None if there is none."""
    if not os.path.exists(prefix + ".index"):
        return None
    reader = tf.train.load_checkpoint(prefix)
    return reader.get_tensor(_SAVE_ID).decode() if reader.has_tensor(_SAVE_ID) else None


def _files(prefix, save_id, unless=None):
    """Yields (number, path) of the tables' files with an id like `save_id`, a pattern."""
    folder, name = os.path.split(prefix)
    pattern = re.compile(re.escape(name) + rf"\.data-(h\d{{4}})-of-({save_id})")
    for file in sorted(os.listdir(folder or ".")) if os.path.isdir(folder or ".") else ():
        match = pattern.fullmatch(file)
        if match and match[2] != unless:
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
