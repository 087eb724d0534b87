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


@contextlib.contextmanager
def workers(systems, log):
    """Processes of the systems, a dict of label -> system, for the duration of a block."""
    started = {}
    try:
        for label, system in systems.items():
            started[label] = Worker(system, python_of(system), log)
        yield started
    finally:
        for worker in started.values():
            worker.close()


@dataclasses.dataclass
class Samples:
    """Seconds of one operation: by label a list of medians, one for each round."""

    medians: dict
    runs: dict  # by label: all that each round measured

    def milliseconds(self, label):
        return 1e3 * statistics.median(self.medians[label])

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
    milliseconds: dict = dataclasses.field(default_factory=dict)  # by label
    facts: dict = dataclasses.field(default_factory=dict)
    goals: list = dataclasses.field(default_factory=list)
    runs: dict = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, case, vocabulary, dim, samples, **facts):
        medians = {label: samples.milliseconds(label) for label in samples.medians}
        return cls(case, vocabulary, dim, medians, facts, [], samples.runs)

    def __str__(self):
        head = f"{self.case}, {self.vocabulary:,} rows, dim {self.dim}"
        times = ", ".join(f"{NAMES.get(k, k)} {v:.3f} ms" for k, v in self.milliseconds.items())
        return "\n    ".join([f"{head}: {times}", *map(str, self.goals)])

    def to_json(self):
        goals = [dataclasses.asdict(goal) | {"met": goal.met} for goal in self.goals]
        return dataclasses.asdict(self) | {"goals": goals}
