"""What a path on the command line names: a store, a checkpoint or a SavedModel."""

import dataclasses
import glob
import os

import tensorflow as tf

from tf_hps import _ops, checkpoint
from tf_hps.store import eager

_STORE_FILES = ("FORMAT", "CURRENT", "commits")


class ToolError(Exception):
    """What went wrong, in a sentence for the user."""


@dataclasses.dataclass
class Source:
    """Tables on disk.

    Attributes:
      kind: "store", "checkpoint" or "SavedModel".
      path: as the user gave it.
      prefix: the store's directory, or the checkpoint's prefix.
      save_ids: of a checkpoint, the ids of its tables' files, one for each store; of a store [""].
      findings: what is wrong with the checkpoint's index: list of (path, text, whether damage).
    """

    kind: str
    path: str
    prefix: str
    save_ids: list = dataclasses.field(default_factory=lambda: [""])
    findings: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class SavedTable:
    """A table as a manifest describes it; `alias` is its name in a checkpoint."""

    alias: str
    name: str
    initializer: str
    salt: str
    optimizer: str
    dim: int
    seed: int
    step: int
    rows: int
    entry_bytes: int
    save_id: str


@dataclasses.dataclass
class Saved:
    """What one save, or a store's commit, consists of."""

    manifest: str
    commit: int
    instances: int
    dense_step: int
    keep_commits: int
    tables: list
    files: list  # of (path, instance, bytes)


def find(path):
    """Returns the `Source` that a path names, or raises ToolError."""
    path = os.path.expanduser(path)
    if os.path.isdir(path):
        if any(os.path.exists(os.path.join(path, name)) for name in _STORE_FILES):
            return Source("store", path, path)
        if os.path.isdir(os.path.join(path, "variables")):
            return _checkpoint("SavedModel", path, os.path.join(path, "variables", "variables"))
        return _latest_checkpoint(path)
    prefix = path.removesuffix(".index")
    if is_prefix(prefix):
        return _checkpoint("checkpoint", path, prefix)
    raise ToolError(
        f"{path}: there is no such store, SavedModel or checkpoint (for a checkpoint give its "
        "prefix, the name without .index)"
    )


def is_prefix(prefix):
    """Returns whether there is a checkpoint, or part of one, of this prefix."""
    return os.path.exists(prefix + ".index") or bool(_ids_on_disk(prefix))


def _latest_checkpoint(path):
    """Returns the `Source` of the last checkpoint in a directory."""
    latest = tf.train.latest_checkpoint(path)
    if latest:
        return _checkpoint("checkpoint", path, latest)
    inside = sorted(glob.glob(os.path.join(glob.escape(path), "*.index")))
    if not inside:
        raise ToolError(f"{path} is no store, SavedModel or directory of checkpoints")
    raise ToolError(
        f"{os.path.join(path, 'checkpoint')} is missing or damaged, and so does not say which "
        f"checkpoint is the last. Name one: {', '.join(p.removesuffix('.index') for p in inside)}"
    )


def _ids_on_disk(prefix):
    return {os.path.basename(path).rsplit("-of-", 1)[1] for path in _files(prefix)}


def _files(prefix, save_id=".{5}"):
    return [path for _, path in checkpoint._files(prefix, save_id)]


def _checkpoint(kind, path, prefix):
    source = Source(kind, path, prefix)
    on_disk = _ids_on_disk(prefix)
    index = prefix + ".index"
    try:
        source.save_ids = sorted(checkpoint._save_ids(prefix))
    except Exception as error:  # TensorFlow raises what it likes here
        missing = not os.path.exists(index)
        text = "is missing" if missing else f"cannot be read: {str(error).splitlines()[0]}"
        source.findings.append((index, text, True))
        source.save_ids = sorted(on_disk)
    if not source.save_ids:
        raise ToolError(f"{path}: this {kind} holds no tf_hps tables")
    for stale in sorted(on_disk - set(source.save_ids)):
        for file in _files(prefix, stale):
            text = f"is of a save that {os.path.basename(index)} does not name; it takes room only"
            source.findings.append((file, text, False))
    return source


def read(source, save_id, commit=None):
    """Returns the `Saved` of one of a source's save ids, or of a store's commit (None: last)."""
    numbers = commits(source) if commit else []
    if commit and commit not in numbers:
        raise ToolError(
            f"{source.path} has no commit {commit}; it has {', '.join(map(str, numbers)) or 'none'}"
        )
    with eager(), _ops.readable_errors():
        manifest, counters, texts, numbers, files, sizes = (
            column.numpy()
            for column in _ops.ops.tf_hps_inspect(source.prefix, save_id, commit or 0)
        )
    texts = [text.decode() for text in texts]
    numbers, sizes = numbers.tolist(), sizes.tolist()
    tables = [
        SavedTable(*texts[i : i + 5], *numbers[i : i + 5], save_id) for i in range(0, len(texts), 5)
    ]
    parts = zip(files, sizes[::2], sizes[1::2], strict=True)
    return Saved(
        manifest[0].decode(),
        *counters.tolist(),
        tables,
        [(name.decode(), instance, size) for name, instance, size in parts],
    )


def commits(source):
    """Returns the numbers of the commits that a store has on disk, ascending."""
    manifests = glob.glob(os.path.join(glob.escape(source.prefix), "commits", "*", "MANIFEST"))
    names = [os.path.basename(os.path.dirname(manifest)) for manifest in manifests]
    return sorted(int(name) for name in names if name.isdigit())


def disk_bytes(paths):
    """Returns what files and directories take on disk, a file of several names once."""
    seen = {}
    for path in paths:
        tree = ((path, [], [""]),) if os.path.isfile(path) else os.walk(path)
        for folder, _, names in tree:
            for name in names:
                try:
                    info = os.lstat(os.path.join(folder, name) if name else folder)
                except FileNotFoundError:
                    continue  # a store in use comes and goes
                seen[info.st_dev, info.st_ino] = info.st_blocks * 512
    return sum(seen.values())
