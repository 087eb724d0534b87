"""The report: Markdown and plots of results.json."""

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

from benchmarks.measure import NAMES  # noqa: E402

SYSTEMS = ("tiered", "tfra", "fbgemm", "dense", "gather")


def write(results, folder):
    """Writes `folder`/README.md and its plots.

    Args:
      results: the content of results.json.
      folder: a path; made if it is not there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    cases = results["results"]
    parts = [_head(results), _goals(cases)]
    beside = [case for case in cases if "tiered" in case["milliseconds"]]
    if beside:
        parts += ["![Milliseconds by system](systems.png)", _times(beside)]
        _plot_systems(beside, folder / "systems.png")
    budgets = [case for case in cases if "share" in case["facts"]]
    if budgets:
        parts += ["![Speed by budget](budgets.png)", _budgets(budgets)]
        _plot_budgets(budgets, folder / "budgets.png")
    (folder / "README.md").write_text("\n\n".join(parts) + "\n")


def _table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def _head(results):
    hardware = results["hardware"]
    packages = {
        package: version
        for system in results["versions"].values()
        for package, version in system.items()
        if package not in ("tensorflow", "threads")
    }
    frameworks = [
        f"{NAMES[name]} under TensorFlow {system['tensorflow']}"
        for name, system in results["versions"].items()
        if "tensorflow" in system
    ]
    return f"""# Benchmarks

Made by `make bench-peers`; [benchmarks/](../../benchmarks) says how.

{hardware["cpu"]}, {hardware["cores"]} cores, {hardware["memory_gib"]} GiB, Linux \
{hardware["kernel"]}; a copy in memory reads and writes \
{results["copy_bytes_per_second"] / 1e9:.1f} GB/s.
{"; ".join(f"{package} {version}" for package, version in packages.items())}; \
{"; ".join(frameworks)}.

A batch has {results["batch"]:,} examples of 26 ids, drawn by a Zipf distribution with exponent
1.05. The dense layer, FBGEMM and the plain gather get row numbers, the others ids all over the
int64 range. FBGEMM's Adagrad is row-wise, its bags have one id each, and its rows lie in host
memory. All systems take turns in one run; times are medians, ratios are those within a turn."""


def _goals(cases):
    rows = [
        [
            case["case"],
            f"{case['vocabulary']:,} × {case['dim']}",
            goal["text"],
            f"{goal['value']:.2f}",
            f"{'at most' if goal['most'] else 'at least'} {goal['limit']:g}",
            "PASS" if goal["met"] else "short",
        ]
        for case in cases
        for goal in case["goals"]
    ]
    return "## Goals\n\n" + _table(["case", "rows × dim", "what", "is", "goal", ""], rows)


def _times(cases):
    rows = [
        [case["case"], f"{case['vocabulary']:,} × {case['dim']}"]
        + [
            f"{case['milliseconds'][name]:.2f}" if name in case["milliseconds"] else ""
            for name in SYSTEMS
        ]
        for case in cases
    ]
    return _table(["ms", "rows × dim", *(NAMES[name] for name in SYSTEMS)], rows)


def _budgets(cases):
    rows = [
        [
            f"1/{1 / case['facts']['share']:.0f}",
            f"{100 * case['facts']['hit_rate']:.1f}%",
            f"{case['facts']['misses_per_step']:,.0f}",
            *(f"{value:.1f}" for value in case["milliseconds"].values()),
            f"{case['facts']['speed']:.2f}",
            f"{case['facts']['speed_with_prefetch']:.2f}",
        ]
        for case in cases
    ]
    head = ["rows in DRAM", "hit rate", "misses of a step"]
    head += ["ms, all in DRAM", "ms", "ms, prefetch", "speed", "speed, prefetch"]
    return _table(head, rows)


def _plot_systems(cases, path):
    figure, axes = pyplot.subplots(
        len(cases), 1, figsize=(8, 0.5 + 1.3 * len(cases)), layout="constrained", squeeze=False
    )
    for axis, case in zip(axes[:, 0], cases, strict=True):
        names = [name for name in reversed(SYSTEMS) if name in case["milliseconds"]]
        values = [case["milliseconds"][name] for name in names]
        colors = ["tab:orange" if name == "tiered" else "tab:blue" for name in names]
        bars = axis.barh([NAMES[name] for name in names], values, color=colors)
        axis.bar_label(bars, fmt="%.2f", padding=3)
        axis.set_xlim(0, 1.15 * max(values))
        axis.set_title(f"{case['case']}, {case['vocabulary']:,} rows × {case['dim']} (ms)", size=9)
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def _plot_budgets(cases, path):
    figure, axis = pyplot.subplots(figsize=(8, 4), layout="constrained")
    facts = [case["facts"] for case in cases]
    shares = [f"1/{1 / each['share']:.0f}" for each in facts]
    axis.plot(shares, [each["speed"] for each in facts], "o-", label="speed")
    ahead = [each["speed_with_prefetch"] for each in facts]
    axis.plot(shares, ahead, "^-", label="speed with prefetch")
    axis.plot(shares, [each["hit_rate"] for each in facts], "s--", label="hit rate")
    axis.set(xlabel="rows in DRAM", ylim=(0, 1), title="fit, against all rows in DRAM")
    axis.legend()
    figure.savefig(path, dpi=100)
    pyplot.close(figure)
