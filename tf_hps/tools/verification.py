"""tf-hps verify."""

import tensorflow as tf

from tf_hps import _ops
from tf_hps.store import eager
from tf_hps.tools import sources, text

_SECONDS = 0.2  # between two looks at the progress, and at Ctrl-C


def verify(path, commit=None):
    """Checks every file and row at a path.

    Args:
      path: of a store, checkpoint or SavedModel.
      commit: of a store, the one to check; None: all that it keeps.

    Returns:
      A dict for JSON: `ok`, counts of `files` and `rows`, and `findings`, each a dict of `path`,
      `problem` and `damage` (False: harmless).
    """
    source = sources.find(path)
    report = {"kind": source.kind, "path": source.path, "ok": True, "files": 0, "rows": 0}
    findings = list(source.findings)
    parts = _parts(source, commit)
    with text.Progress("verify") as progress:
        for i, part in enumerate(parts):
            before = report["files"], report["rows"]
            for done, files, rows, found in _check(source.prefix, *part):
                findings += found
                report |= {"files": before[0] + files, "rows": before[1] + rows}
                progress.update((i + min(done, 1)) / len(parts), f"{report['rows']:,} rows")
    report["ok"] = not any(damage for _, _, damage in findings)
    report["findings"] = [
        {"path": file, "problem": problem, "damage": damage} for file, problem, damage in findings
    ]
    return report


def check_last_commit(source):
    """Raises ToolError if a store's last commit is damaged."""
    with text.Progress("verify") as progress:
        for done, _, rows, found in _check(source.prefix, "", 0):
            progress.update(min(done, 1), f"{rows:,} rows")
            for file, problem, damage in found:
                if damage:
                    raise sources.ToolError(f"{source.path} is damaged: {file}: {problem}")


def _parts(source, commit):
    """Returns what is to be checked: pairs of a save id and the number of a commit, 0 the last."""
    if source.kind != "store":
        if commit:
            raise sources.ToolError(f"--commit: {source.path} is a {source.kind}, not a store")
        return [(save_id, 0) for save_id in source.save_ids]
    if commit:
        sources.read(source, "", commit)
        return [("", commit)]
    kept = sources.commits(source)
    try:
        last = sources.read(source, "").commit
    except tf.errors.OpError:  # which is what the check will find
        last = max(kept, default=0)
    return [("", 0)] + [("", number) for number in reversed(kept) if number < last]


def _check(path, save_id, commit):
    """Yields (part done, files, rows, new findings) until all is checked."""
    ops = _ops.ops
    with eager(), _ops.readable_errors():
        verifier = ops.tf_hps_verify_begin(path, save_id, commit)
        part = 0.0
        while part < 2:
            progress, counters, paths, problems, damage = ops.tf_hps_verify_next(verifier, _SECONDS)
            part = float(progress[0])
            found = zip(paths.numpy(), problems.numpy(), damage.numpy(), strict=True)
            files, rows = counters.numpy().tolist()
            yield part, files, rows, [(p.decode(), t.decode(), bool(d)) for p, t, d in found]


def show(report):
    """Returns what `verify` returned as text; nothing if all is well."""
    lines = []
    for finding in report["findings"]:
        where = "" if finding["path"] in finding["problem"] else f"{finding['path']}: "
        lines.append(f"{'damage' if finding['damage'] else 'note'}: {where}{finding['problem']}")
    return "\n".join(lines)
