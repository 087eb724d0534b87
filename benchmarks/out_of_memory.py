"""The cases with far more rows than DRAM holds: `fit` with budgets, and with more rows."""

import os
import shutil

from benchmarks.measure import Goal, Result, alternate, workers
from benchmarks.worker import BUILD
from benchmarks.workload import FEATURES, Popularity

STORES = BUILD / "bench" / "stores"
ROW_BYTES = 200  # more than a row of dim 16 with Adagrad's state takes


def populated(settings, vocabulary, dim):
    """The path of a store with all rows and Adagrad's state, made once and kept."""
    path = STORES / f"{vocabulary}-{dim}-adagrad"
    if not (path / "CURRENT").exists():
        shutil.rmtree(path, ignore_errors=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        with workers({"tiered": "tiered"}, settings.log) as processes:
            processes["tiered"].call(
                "populate",
                path=str(path),
                vocabulary=vocabulary,
                dim=dim,
                optimizer="adagrad",
                dram_bytes=2**28,
            )
    return path


def clone(path, name):
    """A store like that at `path` that shares its files, which never change."""
    target = STORES / f"clone-{os.getpid()}-{name}"
    shutil.copytree(path / "commits", target / "commits", copy_function=os.link)
    for file in ("FORMAT", "CURRENT"):
        shutil.copy(path / file, target / file)
    return target


class Trainer:
    """A worker that trains in a store of its own, with a budget.

    Args:
      worker: the `Worker`.
      label: what to call it.
      settings: the suite's.
      popularity: `Popularity` of the ids.
      dim: the length of a row.
    """

    def __init__(self, worker, label, settings, popularity, dim):
        self._worker = worker
        self._settings = settings
        self._popularity = popularity
        self._path = clone(populated(settings, popularity.vocabulary, dim), label)
        self._dim = dim

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
        self._worker.call("setup_fit", optimizer="adagrad")

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
        self._worker.call("reset")
        shutil.rmtree(self._path)


def budgets(settings, vocabulary, dim):
    """Yields `fit` with a part of the rows in DRAM, beside one that has all of them."""
    popularity = Popularity(vocabulary)
    draws = settings.batch * FEATURES
    distinct = popularity.misses(0, draws)
    labels = {"all in DRAM": "tiered", "budget": "tiered"}
    with workers(labels, settings.log) as processes:
        whole, part = (
            Trainer(process, label.split()[0], settings, popularity, dim)
            for label, process in processes.items()
        )
        whole.open(2**26 + vocabulary * ROW_BYTES * dim // 16, vocabulary)
        facts = processes["all in DRAM"].call("facts")
        for share in settings.shares:
            rows = int(vocabulary * share)
            part.open(rows * facts["dram_bytes_per_row"], rows)
            misses = part.settle()
            samples = alternate(
                processes, None, settings.rounds, settings.fit_seconds, call="measure_fit"
            )
            result = Result.of(
                f"fit, 1/{1 / share:.0f} of the rows in DRAM",
                vocabulary,
                dim,
                samples,
                share=share,
                misses_per_step=misses,
                hit_rate=1 - misses / distinct,
                counters=processes["budget"].call("counters"),
            )
            speed = samples.ratio("all in DRAM", "budget")
            result.facts["speed"] = speed
            limit = 0.35 if share == 0.1 and vocabulary >= 20_000_000 else None
            if limit:
                result.goals = [Goal("of the speed of all in DRAM, no prefetch", speed, limit)]
            yield result
            processes["budget"].call("reset")
        whole.close()
        shutil.rmtree(part._path)


def growth(settings, vocabularies, dim):
    """Yields the time of a step with few rows and with many, where each misses as much."""
    popularities = {f"{v:,} rows": Popularity(v) for v in vocabularies}
    draws = settings.batch * FEATURES
    few, many = popularities
    with workers(dict.fromkeys(popularities, "tiered"), settings.log) as processes:
        trainers = {
            label: Trainer(processes[label], label.split()[0], settings, popularity, dim)
            for label, popularity in popularities.items()
        }
        bytes_per_row = 160 * dim // 16
        rows = int(popularities[many].vocabulary * 0.1)
        trainers[many].open(rows * bytes_per_row, rows)
        target = wanted = trainers[many].settle()
        for attempt in range(4):
            rows = popularities[few].resident_for(wanted, draws)
            if attempt:
                processes[few].call("reset")
            trainers[few].open(rows * bytes_per_row, rows)
            misses = trainers[few].settle()
            if abs(misses / target - 1) < 0.03:
                break
            wanted *= target / misses
        samples = alternate(
            processes, None, settings.rounds, settings.fit_seconds, call="measure_fit"
        )
        result = Result.of(
            "growth", max(vocabularies), dim, samples, misses_per_step={few: misses, many: target}
        )
        goal = Goal("times the time of a step", samples.ratio(many, few), 1.2, most=True)
        result.goals = (max(vocabularies) >= 20_000_000) * [goal]
        for trainer in trainers.values():
            trainer.close()
        yield result
