"""tf-hps import."""

import os

from tf_hps.store import Store
from tf_hps.table import Table
from tf_hps.tools import formats, sources, text


def import_tables(path, inputs, name, initializer, seed, chunk_rows, dram_bytes):
    """Puts files' rows into a store, which is made if need be, and commits once at the end.

    Returns:
      A dict for JSON: for each table its name, the rows that came in and the rows it has now.
    """
    new = _is_new(path)
    if not new and (kind := sources.find(path).kind) != "store":
        raise sources.ToolError(f"{path} is a {kind}; rows can be put into a store only")
    opened = [formats.Input(each) for each in _expand(inputs)]
    if name and len(inputs) > 1 and len({i.description.get("name") for i in opened}) > 1:
        raise sources.ToolError("--name: the files are of several tables; import them one by one")
    targets = [name or each.description.get("name") for each in opened]
    for each, target in zip(opened, targets, strict=True):
        if not target:
            raise sources.ToolError(f"{each.path} does not say which table it is: use --name")
    was_there = os.path.isdir(path)
    results = []
    store = Store(path, dram_bytes=dram_bytes)
    try:
        for each, target in zip(opened, targets, strict=True):
            options = {"initializer": initializer, "seed": seed}
            results.append(_import_one(store, each, target, options, chunk_rows))
        commit = store.commit()
    except BaseException:
        store.close(commit=False)
        if new:
            _discard(path, was_there)
        raise
    store.close(commit=False)
    return {"path": path, "commit": commit, "tables": results}


def _discard(path, but_the_folder):
    """Removes the store at a path, which did not come about."""
    for name in os.listdir(path):
        formats.remove(os.path.join(path, name))
    if not but_the_folder:
        os.rmdir(path)


def _is_new(path):
    """Returns whether a store is to be made there, where no checkpoint is either."""
    if os.path.isdir(path):
        return not os.listdir(path)
    return not os.path.exists(path) and not sources.is_prefix(path)


def _expand(inputs):
    """Yields the paths of tables; a folder that `export` made holds several."""
    for path in inputs:
        if not os.path.isdir(path) or os.path.exists(os.path.join(path, "table.json")):
            yield path
            continue
        inside = [os.path.join(path, entry) for entry in sorted(os.listdir(path))]
        tables = [
            entry
            for entry in inside
            if entry.endswith(".parquet") or os.path.exists(os.path.join(entry, "table.json"))
        ]
        yield from tables or [path]


def _import_one(store, source, name, options, chunk_rows):
    table, done = None, 0
    with text.Progress(f"import {name}") as progress:
        for keys, weights in source.chunks(chunk_rows):
            if table is None:
                table = _table(store, source, name, weights.shape[1], options)
            if weights.shape[1] != table.dim:
                raise sources.ToolError(
                    f"{source.path}: weights have {weights.shape[1]} elements, and the rows of "
                    f"table '{name}' {table.dim}"
                )
            table.upsert(keys, weights)
            done += len(keys)
            progress.update(done / max(source.rows or done, 1), f"{done:,} rows")
    if table is None and source.description:
        table = _table(store, source, name, source.description["dim"], options)
    size = table.size() if table else 0
    return {"table": name, "file": source.path, "rows_read": done, "rows": size}


def _table(store, source, name, dim, options):
    """Returns the table to put rows into: the store's, else a new one as its file describes it."""
    there = store._layouts().get(name, {})
    layout = {}
    for key, default in (("initializer", "uniform"), ("seed", 0)):
        layout[key] = there.get(key, source.description.get(key, default))
        if options[key] is not None:
            layout[key] = options[key]
    if there and there["dim"] != dim:
        raise sources.ToolError(
            f"{source.path}: weights have {dim} elements, and the rows of table '{name}' "
            f"{there['dim']}"
        )
    return Table(name, dim, store, **layout)


def show(report):
    """Returns what `import_tables` returned as text."""
    rows = [
        [text.shown(table["table"]), f"{table['rows_read']:,}", f"{table['rows']:,}", table["file"]]
        for table in report["tables"]
    ]
    lines = text.columns(["table", "rows read", "rows now", "file"], rows)
    return f"{lines}\ncommit {report['commit']} of {report['path']}"
