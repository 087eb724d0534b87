"""The cases with far more rows than DRAM holds: `fit` with budgets, and with more rows."""

import os
import pathlib
import shutil
import tempfile

from benchmarks.measure import Goal, Result, alternate
from benchmarks.worker import BUILD
from benchmarks.workload import FEATURES, Popularity

STORES = BUILD / "bench" / "stores"
ROW_BYTES = 200  # more than a row of dim 16 with Adagrad's state takes


def populated(settings, vocabulary, dim):
    """The path of a store with all rows and Adagrad's state, made once and kept."""
    path = STORES / f"{vocabulary}-{dim}-adagrad"
    if not path.exists():
        part = path.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        with settings.workers({"tiered": "tiered"}) as processes:
            processes["tiered"].call(
                "populate",
                path=str(part),
                vocabulary=vocabulary,
                dim=dim,
                optimizer="adagrad",
                dram_bytes=2**28,
            )
        part.rename(path)
    return path


def scratch():
    """A context manager that gives a folder beside the kept stores, on the same disk."""
    STORES.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(prefix="scratch-", dir=STORES)


def clone(path, target):
    """Makes a store like that at `path` that shares its files, which never change."""
    shutil.copytree(path / "commits", target / "commits", copy_function=os.link)
    for file in ("FORMAT", "CURRENT"):
        shutil.copy(path / file, target / file)


class Trainer:
    """A worker that trains in a store of its own, with a budget.

    Args:
      worker: the `Worker`.
      folder: where the store is made, a path.
      settings: the suite's.
      popularity: `Popularity` of the ids.
      dim: the length of a row.
      prefetch: whether rows of coming batches are brought up ahead.
    """

    def __init__(self, worker, folder, settings, popularity, dim, prefetch=False):
        self._worker = worker
        self._settings = settings
        self._popularity = popularity
        self._path = folder / str(id(self))
        self._dim = dim
        self._prefetch = prefetch
        clone(populated(settings, popularity.vocabulary, dim), self._path)

    def open(self, dram_bytes, resident):
        """Opens the store with a budget, and brings the hottest rows into DRAM."""
        settings = self._settings
        settings.setup(
            self._worker,
            self._popularity.vocabulary,
            self._dim,
            batches=settings.long_batches,
            fill=False,
            check=False,
            path=str(self._path),
            dram_bytes=int(dram_bytes),
        )
        self._worker.call("touch", ranks=resident)
        self._worker.call("setup_fit", optimizer="adagrad", prefetch=self._prefetch)

    def settle(self):
        """Trains until a step misses as much as before. Returns misses of a step."""
        misses = [float("inf")]
        for _ in range(self._settings.settling):
            misses.append(self.misses(self._settings.window))
            if abs(misses[-1] - misses[-2]) < 0.03 * misses[-1]:
                break
        return misses[-1]

    def misses(self, steps):
        """Trains, and returns the rows that a step found in no memory."""
        before = self._worker.call("counters")["dram"]["misses"]
        self._worker.call("measure_fit", count=steps)
        return (self._worker.call("counters")["dram"]["misses"] - before) / steps

    def close(self):
        """Closes the store; `open` may follow."""
        self._worker.call("reset")


def _alternate(processes, settings):
    """Turns of `fit`, short ones: batches must not come back."""
    seconds = settings.fit_seconds / 2
    return alternate(processes, None, settings.rounds, seconds, most=30, call="measure_fit")


def budgets(settings, vocabulary, dim):
    """Yields `fit` with a part of the rows in DRAM, beside one that has all of them."""
    popularity = Popularity(vocabulary)
    draws = settings.batch * FEATURES
    distinct = popularity.misses(0, draws)
    labels = dict.fromkeys(("all in DRAM", "budget", "budget, prefetch"), "tiered")
    with scratch() as folder, settings.workers(labels) as processes:
        whole, *parts = (
            Trainer(process, pathlib.Path(folder), settings, popularity, dim, "prefetch" in label)
            for label, process in processes.items()
        )
        whole.open(2**26 + vocabulary * ROW_BYTES * dim // 16, vocabulary)
        facts = processes["all in DRAM"].call("facts")
        for share in settings.shares:
            rows = int(vocabulary * share)
            for part in parts:
                part.open(rows * facts["dram_bytes_per_row"], rows)
            misses, ahead = (part.settle() for part in parts)
            samples = _alternate(processes, settings)
            result = Result.of(
                f"fit, 1/{1 / share:.0f} of the rows in DRAM",
                vocabulary,
                dim,
                samples,
                share=share,
                misses_per_step=misses,
                misses_with_prefetch=ahead,
                hit_rate=1 - misses / distinct,
                speed=samples.ratio("all in DRAM", "budget"),
                speed_with_prefetch=samples.ratio("all in DRAM", "budget, prefetch"),
                counters={label: processes[label].call("counters") for label in list(labels)[1:]},
            )
            if share == 0.1 and vocabulary >= 20_000_000:
                of = "of the speed of all in DRAM"
                result.goals = [
                    Goal(of, result.facts["speed"], 0.35),
                    Goal(f"with prefetch, {of}", result.facts["speed_with_prefetch"], 0.5),
                ]
            yield result
            for part in parts:
                part.close()


def growth(settings, vocabularies, dim):
    """Yields the time of a step with few rows and with many, where each misses as much."""
    popularities = {f"{v:,} rows": Popularity(v) for v in vocabularies}
    draws = settings.batch * FEATURES
    few, many = popularities
    with scratch() as folder, settings.workers(dict.fromkeys(popularities, "tiered")) as processes:
        trainers = {
            label: Trainer(processes[label], pathlib.Path(folder), settings, popularity, dim)
            for label, popularity in popularities.items()
        }
        bytes_per_row = 160 * dim // 16
        rows = int(popularities[many].vocabulary * 0.1)
        trainers[many].open(rows * bytes_per_row, rows)
        target = wanted = trainers[many].settle()
        for attempt in range(4):
            rows = popularities[few].resident_for(wanted, draws)
            if attempt:
                trainers[few].close()
            trainers[few].open(rows * bytes_per_row, rows)
            misses = trainers[few].settle()
            if abs(misses / target - 1) < 0.03:
                break
            wanted *= target / misses
        samples = _alternate(processes, settings)
        result = Result.of(
            "growth", max(vocabularies), dim, samples, misses_per_step={few: misses, many: target}
        )
        goal = Goal("times the time of a step", samples.ratio(many, few), 1.2, most=True)
        result.goals = (max(vocabularies) >= 20_000_000) * [goal]
        yield result
