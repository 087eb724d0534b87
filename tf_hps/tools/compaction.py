"""tf-hps compact."""

from tf_hps import _ops
from tf_hps.store import Store
from tf_hps.tools import sources, text, verification


def compact(path, dram_bytes):
    """Rewrites a store without garbage and commits.

    A damaged store is refused, rather than that a new commit takes the place of sound ones.

    Returns:
      A dict for JSON: bytes of the last commit's files and of the whole store on disk, `before`
      and `after`.
    """
    source = sources.find(path)
    if source.kind != "store":
        raise sources.ToolError(f"{path} is a {source.kind}; only a store can be compacted")
    verification.check_last_commit(source)
    before = _sizes(source)
    with text.Progress("compact") as progress:
        progress.update(0, "(LevelDB does not say how far it is)")
        with Store(path, dram_bytes=dram_bytes) as store:
            with _ops.readable_errors():
                _ops.ops.tf_hps_store_compact(store.handle)
            store.commit()
            store.close(commit=False)
    return {
        "path": path,
        "before": before,
        "after": _sizes(source),
        "commits": sources.commits(source),
    }


def _sizes(source):
    saved = sources.read(source, "")
    files = sum(size for _, _, size in saved.files)
    return {"file_bytes": files, "disk_bytes": sources.disk_bytes([source.prefix])}


def show(report):
    """Returns what `compact` returned as text."""
    rows = [
        [name, *(text.size(report[when][key]) for when in ("before", "after"))]
        for name, key in (("last commit", "file_bytes"), ("on disk", "disk_bytes"))
    ]
    lines = [text.columns(["", "before", "after"], rows)]
    if len(report["commits"]) > 1:
        lines.append(f"{len(report['commits'])} commits are kept; the older ones hold old files")
    return "\n".join(lines)
