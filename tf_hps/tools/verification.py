"""tf-hps verify."""

from tf_hps import _ops
from tf_hps.store import eager
from tf_hps.tools import sources, text

_SECONDS = 0.2  # between two looks at the progress, and at Ctrl-C


def verify(path):
    """Checks every file and row at a path.

    Returns:
      A dict for JSON: `ok`, counts of `files` and `rows`, and `findings`, each a dict of `path`,
      `problem` and `damage` (False: harmless).
    """
    source = sources.find(path)
    report = {"kind": source.kind, "path": source.path, "ok": True, "files": 0, "rows": 0}
    findings = list(source.findings)
    with text.Progress("verify") as progress:
        for i, save_id in enumerate(source.save_ids):
            before = report["files"], report["rows"]
            for part, files, rows, found in _check(source.prefix, save_id):
                findings += found
                report |= {"files": before[0] + files, "rows": before[1] + rows}
                done = (i + min(part, 1)) / len(source.save_ids)
                progress.update(done, f"{report['rows']:,} rows")
    report["ok"] = not any(damage for _, _, damage in findings)
    report["findings"] = [
        {"path": file, "problem": problem, "damage": damage} for file, problem, damage in findings
    ]
    return report


def _check(path, save_id):
    """Yields (part done, files, rows, new findings) until all is checked."""
    ops = _ops.ops
    with eager(), _ops.readable_errors():
        verifier = ops.tf_hps_verify_begin(path, save_id)
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
