"""What the training example measures, prints and draws."""

from __future__ import annotations

import dataclasses
import pathlib

import numpy as np

import tf_hps

TIERS = ("dram", "ssd")
MAX_LOSS_DIFFERENCE = 1e-4  # relative, at each step of the first epoch
MAX_AUC_DIFFERENCE = 5e-4


@dataclasses.dataclass
class History:
    """What one model's training left behind."""

    losses: list[float] = dataclasses.field(default_factory=list)  # of each step
    aucs: list[float] = dataclasses.field(default_factory=list)  # on the test set, after each epoch
    seconds: float = 0.0  # spent in training steps
    # Of the tiered model: a step, and the rows used since the one before (see `rows_used`).
    rows_used: list[tuple[int, np.ndarray]] = dataclasses.field(default_factory=list)


def auc(clicks: np.ndarray, scores: np.ndarray) -> float:
    """Area under the ROC curve, exact: the share of (click, no click) pairs in the right order.

    Args:
      clicks: [n], 1 or 0; both occur.
      scores: [n]; a tied pair counts half.
    """
    _, group, size = np.unique(scores, return_inverse=True, return_counts=True)
    rank = (np.cumsum(size) - (size - 1) / 2)[group]  # from 1; ties share their mean rank
    positive = np.count_nonzero(clicks)
    negative = len(clicks) - positive
    below = rank[clicks > 0].sum() - positive * (positive + 1) / 2
    return float(below / (positive * negative))


def tier_counts(store: tf_hps.Store) -> dict[str, dict[str, int]]:
    """Counters of each tier, summed over the store's tables: rows, bytes, hits, misses, ..."""
    totals: dict[str, dict[str, int]] = {tier: {} for tier in TIERS}
    for table in store.stats()["tables"].values():
        for tier, total in totals.items():
            for name, value in table[tier].items():
                total[name] = total.get(name, 0) + value
    return totals


def rows_used(store: tf_hps.Store) -> np.ndarray:
    """How many rows were found in DRAM, read from SSD, and new, since the store was opened: [3]."""
    tiers = tier_counts(store)
    return np.array([tiers["dram"]["hits"], tiers["ssd"]["hits"], tiers["ssd"]["misses"]])


def tier_table(store: tf_hps.Store) -> str:
    """Rows, bytes and hits of each tier as lines of text."""
    tiers, disk = tier_counts(store), store.stats()["store"]
    lines = [f"{'tier':<6}{'rows':>10}{'KiB':>10}{'hits':>12}{'misses':>12}{'hit rate':>10}"]
    for tier, count in tiers.items():
        rate = count["hits"] / max(1, count["hits"] + count["misses"])
        lines.append(
            f"{tier:<6}{count['rows']:>10,}{count['bytes'] / 1024:>10,.0f}"
            f"{count['hits']:>12,}{count['misses']:>12,}{rate:>10.1%}"
        )
    rows = sum(table["rows"] for table in store.stats()["tables"].values())
    read, written = disk["bytes_read"] / 2**20, disk["bytes_written"] / 2**20
    lines.append(f"{rows:,} rows in all; DRAM holds {tiers['dram']['rows'] / rows:.1%} of them")
    lines.append("hits: ids whose row was in DRAM; misses: rows that had to be read or made")
    lines.append(f"LevelDB read {read:,.0f} MiB and wrote {written:,.0f} MiB (whole blocks)")
    return "\n".join(lines)


def compare(dense: History, tiered: History, epochs: int, store: tf_hps.Store) -> dict[str, float]:
    """The figures of the example; those that decide whether it succeeded are among them."""
    losses = np.array([dense.losses, tiered.losses])[:, : len(dense.losses) // epochs]
    disk = store.stats()["store"]
    return {
        "dense_auc": dense.aucs[-1],
        "tiered_auc": tiered.aucs[-1],
        "auc_difference": abs(dense.aucs[-1] - tiered.aucs[-1]),
        "loss_difference": float((abs(losses[0] - losses[1]) / losses[0]).max()),
        "dense_seconds": dense.seconds,
        "tiered_seconds": tiered.seconds,
        "ssd_bytes_read": disk["bytes_read"],
        "ssd_bytes_written": disk["bytes_written"],
    }


def summary(figures: dict[str, float], store: tf_hps.Store) -> str:
    """The outcome as lines of text."""
    return f"""
{"":<26}{"dense":>12}{"tiered":>12}{"difference":>12}{"allowed":>10}
{"test AUC":<26}{figures["dense_auc"]:>12.5f}{figures["tiered_auc"]:>12.5f}\
{figures["auc_difference"]:>12.1e}{MAX_AUC_DIFFERENCE:>10.0e}
{"loss, step by step (max)":<50}{figures["loss_difference"]:>12.1e}{MAX_LOSS_DIFFERENCE:>10.0e}
{"seconds in steps":<26}{figures["dense_seconds"]:>12.1f}{figures["tiered_seconds"]:>12.1f}

{tier_table(store)}"""


def failures(figures: dict[str, float]) -> list[str]:
    """What the example promises and the figures do not show."""
    limits = {"loss_difference": MAX_LOSS_DIFFERENCE, "auc_difference": MAX_AUC_DIFFERENCE}
    wrong = [
        f"{name} is {figures[name]:.1e}, more than {limit:.0e}"
        for name, limit in limits.items()
        if not figures[name] <= limit  # so that NaN fails
    ]
    sizes = ("ssd_bytes_read", "ssd_bytes_written")
    return wrong + [f"{name} is 0: all rows fitted in DRAM" for name in sizes if not figures[name]]


def draw_curves(dense: History, tiered: History, path: pathlib.Path) -> None:
    """Draws the losses of both models and where the tiered one's rows came from, as a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, (top, bottom) = pyplot.subplots(2, 1, figsize=(8, 7), sharex=True, layout="constrained")
    _draw_losses(top, dense, tiered)
    _draw_sources(bottom, tiered)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def _draw_losses(axes, dense: History, tiered: History) -> None:
    """Smoothed losses: the dense model's as a wide band, the tiered one's as a line on it."""
    for history, label, style in (
        (dense, "dense Embedding", {"color": "#9ecae1", "linewidth": 6}),
        (tiered, "HPSEmbedding", {"color": "#08306b", "linewidth": 1.3}),
    ):
        window = max(1, len(history.losses) // 40)
        smooth = np.convolve(history.losses, np.ones(window) / window, "valid")
        axes.plot(np.arange(window, window + len(smooth)), smooth, label=label, **style)
    axes.set(title="Both models learn alike", ylabel="training loss")
    axes.legend(frameon=False)


def _draw_sources(axes, tiered: History) -> None:
    """Shares of DRAM, SSD and new rows among the rows used between two measurements."""
    steps, used = zip(*tiered.rows_used, strict=True)
    used = np.stack(used)  # [points, 3]
    shares = used / used.sum(axis=1, keepdims=True)
    axes.stackplot(
        steps,
        shares.T,
        labels=("found in DRAM (hit rate)", "read from SSD", "new"),
        colors=("#2171b5", "#fdae6b", "#d9d9d9"),
    )
    axes.set(title="Where the rows came from", xlabel="training step", ylabel="share of rows used")
    axes.set(ylim=(0, 1), xlim=(steps[0], steps[-1]))
    axes.legend(loc="lower right", framealpha=0.9)
