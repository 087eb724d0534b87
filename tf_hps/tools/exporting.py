"""tf-hps export."""

import contextlib
import os
import urllib.parse

from tf_hps import checkpoint
from tf_hps.store import Store
from tf_hps.table import Table
from tf_hps.tools import formats, sources, text

_SLOTS = {  # of an optimizer's spec without its parameters: what a row's state consists of
    "": (),
    "sgd": (),
    "momentum": ("momentum",),
    "adagrad": ("accumulator",),
    "adam": ("m", "v", "vhat"),
}


def export(path, output, names, commit, format, state, chunk_rows, overwrite, dram_bytes):
    """Writes tables to files; see `formats`.

    Returns:
      A dict for JSON: for each table its name, file, rows and bytes.
    """
    source = sources.find(path)
    if commit and source.kind != "store":
        raise sources.ToolError(f"--commit: {path} is a {source.kind}; only stores have commits")
    saved = [t for save_id in source.save_ids for t in sources.read(source, save_id, commit).tables]
    formats.check_available(format)
    chosen = _choose(path, saved, names)
    targets = {table.alias: _target(table, saved, output, format, overwrite) for table in chosen}
    os.makedirs(output, exist_ok=True)
    results = []
    for save_id in source.save_ids:
        wanted = [table for table in chosen if table.save_id == save_id]
        with _opened(source, save_id, saved, commit, dram_bytes) as tables:
            for about in wanted:
                target = targets[about.alias]
                _write(tables[about.alias], about, target, format, state, chunk_rows)
                size = sources.disk_bytes([target])
                results.append(
                    {"table": about.name, "file": target, "rows": about.rows, "bytes": size}
                )
    return {"path": path, "tables": results}


def _choose(path, saved, names):
    """Returns the tables of these names, all if there are none."""
    for name in names:
        if not any(name in (table.name, table.alias) for table in saved):
            have = ", ".join(table.name for table in saved) or "none"
            raise sources.ToolError(f"{path} has no table '{name}'. It has: {have}")
    return [t for t in saved if not names or t.name in names or t.alias in names]


def _target(table, saved, output, format, overwrite):
    """Returns the path of a table's file or folder."""
    unique = sum(other.name == table.name for other in saved) == 1
    name = urllib.parse.quote(table.name if unique else table.alias, safe=" ")
    if not name.strip("."):  # quote leaves dots, and "." and ".." are other folders
        name = name.replace(".", "%2E")
    target = formats.output_path(output, name, format)
    if os.path.exists(target) and not overwrite:
        raise sources.ToolError(f"{target} is there already; use --overwrite, or another folder")
    return target


@contextlib.contextmanager
def _opened(source, save_id, saved, commit, dram_bytes):
    """Yields the open tables of a source by alias."""
    if source.kind == "store":
        store = Store(source.prefix, dram_bytes=dram_bytes, commit=commit)
    else:
        store = Store(dram_bytes=dram_bytes)
    try:
        if source.kind == "store":
            yield store.tables
            return
        tables = {
            t.alias: Table(t.alias, t.dim, store, t.initializer, t.seed)
            for t in saved
            if t.save_id == save_id
        }
        checkpoint._restore_tables(source.prefix, save_id, tables)
        yield tables
    finally:
        store.close(commit=False)


def slots_of(optimizer):
    """Returns the names of an optimizer's slots, given its spec."""
    names = _SLOTS[optimizer.split("(")[0]]
    return names[:2] if optimizer == "adam(amsgrad=0)" else names


def _write(table, about, target, format, state, chunk_rows):
    slots = slots_of(about.optimizer) if state else ()
    description = {
        "name": about.name,
        "dim": about.dim,
        "initializer": about.initializer,
        "seed": about.seed,
        "salt": about.salt,
        "optimizer": about.optimizer,
        "step": about.step,
        "rows": about.rows,
        "slots": slots,
    }
    done = 0
    with (
        text.Progress(f"export {text.shown(about.name)}") as progress,
        formats.writer(target, format, description) as write,
    ):
        for keys, weights, states in table.export(chunk_rows, state=True):
            arrays = {"keys": keys, "weights": weights}
            for i, slot in enumerate(slots):
                arrays[slot] = states[:, i * about.dim : (i + 1) * about.dim]
            write(arrays)
            done += len(keys)
            progress.update(done / max(about.rows, 1), f"{done:,} rows")


def show(report):
    """Returns what `export` returned as text."""
    rows = [
        [text.shown(table["table"]), f"{table['rows']:,}", text.size(table["bytes"]), table["file"]]
        for table in report["tables"]
    ]
    return text.columns(["table", "rows", "size", "file"], rows)
