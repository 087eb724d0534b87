"""tf-hps inspect."""

from tf_hps._estimate import estimate
from tf_hps.tools import sources, text


def inspect(path, commit=None):
    """Returns what is at a path, a dict for JSON. Reads manifests only."""
    source = sources.find(path)
    if commit and source.kind != "store":
        raise sources.ToolError(f"--commit: {path} is a {source.kind}; only stores have commits")
    parts = [sources.read(source, save_id, commit) for save_id in source.save_ids]
    files = [file for part in parts for file in part.files]
    report = {"kind": source.kind, "path": source.path, "format": _format(source, parts[0])}
    if source.kind == "store":
        report["commit"] = parts[0].commit
        report["commits"] = sources.commits(source)
        report["keep_commits"] = parts[0].keep_commits or 1
    else:
        report["prefix"] = source.prefix
        report["save_ids"] = source.save_ids
    report |= {
        "dense_step": max(part.dense_step for part in parts),
        "instances": sum(part.instances for part in parts),
        "files": len(files),
        "file_bytes": sum(size for _, _, size in files),
        "disk_bytes": _disk_bytes(source, parts),
        "tables": [_table(table) for part in parts for table in part.tables],
        "problems": [f"{file}: {problem}" for file, problem, _ in source.findings],
    }
    return report


def _format(source, saved):
    name = saved.manifest if source.kind != "store" else f"{source.prefix}/FORMAT"
    with open(name, encoding="utf-8") as file:
        return file.readline().strip()


def _disk_bytes(source, parts):
    if source.kind == "store":
        return sources.disk_bytes([source.prefix])
    return sources.disk_bytes(
        [part.manifest for part in parts] + [name for part in parts for name, _, _ in part.files]
    )


def _table(table):
    return {
        "name": table.name,
        "alias": table.alias,
        "dim": table.dim,
        "initializer": table.initializer,
        "seed": table.seed,
        "optimizer": table.optimizer or None,
        "step": table.step,
        "rows": table.rows,
        "row_bytes": table.entry_bytes,
        "ssd_bytes": table.rows * table.entry_bytes,
        # What the dram tier would take if it held all rows.
        "dram_bytes": estimate(table.rows, table.dim, table.optimizer).dram_bytes,
    }


def show(report):
    """Returns what `inspect` returned as text."""
    facts = [(report["kind"], f"{report['path']} ({report['format']})")]
    if report["kind"] == "store":
        others = [str(n) for n in report["commits"] if n != report["commit"]]
        commit = f"{report['commit']}, of dense step {report['dense_step']}"
        if not report["commit"]:
            commit = "none yet"
        kept = f", {report['keep_commits']} are kept" if report["keep_commits"] > 1 else ""
        others = f"; others: {', '.join(others)}" if others else ""
        facts.append(("commit", commit + others + kept))
    else:
        facts.append(("prefix", f"{report['prefix']}, of dense step {report['dense_step']}"))
        facts.append(("save id", ", ".join(report["save_ids"])))
    instances = report["instances"]
    files = f"{report['files']} files, {text.size(report['file_bytes'])}"
    facts.append(("LevelDB", f"{instances} instance{'s' * (instances != 1)}, {files}"))
    facts.append(("on disk", text.size(report["disk_bytes"])))
    lines = [f"{name:<10}  {value}" for name, value in facts]
    header = ["table", "rows", "dim", "SSD", "a row", "DRAM, if all", "optimizer", "step"]
    header += ["initializer", "seed"]
    rows = [_row(table) for table in report["tables"]]
    if rows:
        lines += ["", text.columns(header, rows)]
    return "\n".join(lines + [f"problem: {problem}" for problem in report["problems"]])


def _row(table):
    return [
        text.shown(table["name"]),
        f"{table['rows']:,}",
        table["dim"],
        text.size(table["ssd_bytes"]),
        text.size(table["row_bytes"]),
        text.size(table["dram_bytes"]),
        table["optimizer"] or "none yet",
        f"{table['step']:,}",
        table["initializer"],
        table["seed"],
    ]
