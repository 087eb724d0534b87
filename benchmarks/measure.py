"""Systems side by side: workers that alternate, medians, ratios, what was to be reached."""

import contextlib
import dataclasses
import statistics
import sys

from benchmarks.worker import BUILD, Worker

PEERS = ("tfra", "fbgemm")  # that need an environment of their own
NAMES = {
    "tiered": "tf_hps",
    "dense": "tf_keras Embedding",
    "tfra": "TFRA CuckooHashTable",
    "fbgemm": "FBGEMM CPU",
    "gather": "plain gather",
}


def python_of(system):
    """The interpreter of a system's environment."""
    return BUILD / "peers" / system / "bin" / "python" if system in PEERS else sys.executable


class Workers:
    """Starts processes of systems.

    Args:
      log: an open file for what they print.
      keep: whether to use processes again, which saves their start. Memory that one case
        took and freed then makes the next one's figures differ a little.
    """

    def __init__(self, log, keep):
        self._log = log
        self._keep = keep
        self._idle = []

    @contextlib.contextmanager
    def __call__(self, systems):
        """Gives processes, a dict of label -> `Worker` like `systems`, to a block."""
        given = {}
        try:
            for label, system in systems.items():
                given[label] = self._take(system)
            yield given
            for worker in given.values():
                if self._keep and worker.system not in PEERS:
                    worker.call("reset")
                    self._idle.append(worker)
        finally:
            for worker in given.values():
                if worker not in self._idle:
                    worker.close()

    def _take(self, system):
        for worker in self._idle:
            if worker.system == system:
                self._idle.remove(worker)
                return worker
        return Worker(system, python_of(system), self._log)

    def close(self):
        """Ends the processes that were kept."""
        for worker in self._idle:
            worker.close()


@dataclasses.dataclass
class Samples:
    """Seconds of one operation: by label a list of medians, one for each round."""

    medians: dict
    runs: dict  # by label: all that each round measured

    def milliseconds(self, label):
        return 1e3 * statistics.median(self.medians[label])

    def fastest(self, label):
        return 1e3 * min(map(min, self.runs[label]))

    def ratio(self, label, to):
        """How many times as long `label` took as `to`: the median over rounds."""
        pairs = zip(self.medians[label], self.medians[to], strict=True)
        return statistics.median(a / b for a, b in pairs)


def alternate(workers, operation, rounds, seconds, most=200, call="measure"):
    """Lets workers take turns at an operation.

    Args:
      workers: a dict of label -> Worker.
      operation: its name, or None for `fit`.
      rounds: how often each has its turn.
      seconds: how long a turn is to take.
      most: the most runs in a turn.

    Returns:
      `Samples`.
    """
    arguments = {"operation": operation} if operation else {}
    counts = {}
    for label, worker in workers.items():
        fastest = min(worker.call(call, count=3, **arguments))
        fastest = min(worker.call(call, count=3, **arguments))  # without compilation
        counts[label] = max(3, min(most, int(seconds / fastest)))
    runs = {label: [] for label in workers}
    for _ in range(rounds):
        for label, worker in workers.items():
            runs[label].append(worker.call(call, count=counts[label], **arguments))
    medians = {label: [statistics.median(run) for run in turns] for label, turns in runs.items()}
    return Samples(medians, runs)


@dataclasses.dataclass
class Goal:
    """A line of what is to be reached.

    Args:
      text: what the value is.
      value: what was measured.
      limit: the least that it must be, or the most.
      most: whether `limit` is the most.
    """

    text: str
    value: float
    limit: float
    most: bool = False

    @property
    def met(self):
        return self.value <= self.limit if self.most else self.value >= self.limit

    def __str__(self):
        sign = "<=" if self.most else ">="
        verdict = "PASS" if self.met else "short"
        return f"{self.text}: {self.value:.2f} ({sign} {self.limit:g}) {verdict}"


@dataclasses.dataclass
class Result:
    """What a case found."""

    case: str
    vocabulary: int
    dim: int
    milliseconds: dict = dataclasses.field(default_factory=dict)  # by label: medians
    fastest: dict = dataclasses.field(
        default_factory=dict
    )  # by label: milliseconds of the best run
    facts: dict = dataclasses.field(default_factory=dict)
    goals: list = dataclasses.field(default_factory=list)
    runs: dict = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, case, vocabulary, dim, samples, **facts):
        return cls(
            case,
            vocabulary,
            dim,
            milliseconds={label: samples.milliseconds(label) for label in samples.medians},
            fastest={label: samples.fastest(label) for label in samples.medians},
            facts=facts,
            runs=samples.runs,
        )

    def __str__(self):
        times = [
            f"{NAMES.get(label, label)}: {milliseconds:.3f} ms, best {self.fastest[label]:.3f}"
            for label, milliseconds in self.milliseconds.items()
        ]
        head = f"{self.case}, {self.vocabulary:,} rows, dim {self.dim}"
        return "\n    ".join([head, *times, *map(str, self.goals)])

    def to_json(self):
        goals = [dataclasses.asdict(goal) | {"met": goal.met} for goal in self.goals]
        return dataclasses.asdict(self) | {"goals": goals}
