"""Times tf_hps, what one would use instead, and the limit of what is possible.

    make bench SIZE=small          # a minute; what CI runs
    make bench                     # all sizes; hours
    make bench-peers               # the same beside the peers
    python -m benchmarks --size=all --cases=memory,fit --vocabularies=5000000 --dims=16 --peers

Every system is a process of its own, and they take turns: each figure is the median of at
least five turns, each ratio the median of the ratios within a turn. Results go to build/bench/.
"""

import dataclasses
import json
import os
import pathlib
import platform
import time

from absl import app, flags

from benchmarks import cases, out_of_memory, report
from benchmarks.measure import PEERS, Workers, python_of
from benchmarks.worker import BUILD, ROOT

FLAGS = flags.FLAGS
flags.DEFINE_enum("size", "all", ["small", "all"], "how much to run")
flags.DEFINE_bool("peers", False, "run the peers too; `make bench-peers` makes their environments")
flags.DEFINE_list("cases", "memory,fit,columns,budgets,growth", "which kinds of cases to run")
flags.DEFINE_list("vocabularies", None, "numbers of rows of the cases in memory, for those of size")
flags.DEFINE_list("dims", None, "lengths of a row of the cases in memory, for those of size")
flags.DEFINE_list("shares", None, "shares of rows in DRAM of the budget cases, for those of size")
flags.DEFINE_integer("rounds", None, "turns of each system, at least 5", lower_bound=5)
flags.DEFINE_bool("report", False, "write docs/benchmarks/ too")
flags.DEFINE_string("output", str(BUILD / "bench"), "where results.json goes")


@dataclasses.dataclass
class Settings:
    """What a size stands for. Times are seconds of a turn."""

    vocabularies: tuple = (1_000_000, 5_000_000, 20_000_000)
    dims: tuple = (16, 8, 64)
    main: int = cases.MODEL_ROWS  # rows of `fit` and `columns`
    large: int = 20_000_000  # rows of `budgets` and `growth`
    fewest: int = 1_000_000  # rows that growth begins with
    batch: int = 4096
    batches: int = 16
    long_batches: int = 512  # of the cases where a batch must not come back
    shares: tuple = (1 / 2, 1 / 4, 1 / 10, 1 / 20)
    rounds: int = 7
    seconds: float = 0.3
    fit_seconds: float = 2.0
    settling: int = 12  # windows of steps, at most
    window: int = 20
    peers: tuple = ()
    keep_workers: bool = False
    workers: Workers = None

    def setup(self, worker, vocabulary, dim, **options):
        arguments = {"batch": self.batch, "batches": self.batches, **options}
        return worker.call("setup", vocabulary=vocabulary, dim=dim, **arguments)

    def has_goals(self, vocabulary, dim):
        model = (cases.MODEL_ROWS, cases.MODEL_DIM, 4096)
        return (vocabulary, dim, self.batch) == model


SMALL = Settings(
    vocabularies=(50_000,),
    dims=(16,),
    main=50_000,
    large=100_000,
    fewest=20_000,
    batch=256,
    batches=4,
    long_batches=64,
    shares=(1 / 2, 1 / 10),
    rounds=5,
    seconds=0.03,
    fit_seconds=0.1,
    settling=3,
    window=8,
    keep_workers=True,
)


def settings_of_flags(log):
    settings = dataclasses.replace(SMALL if FLAGS.size == "small" else Settings())
    settings.workers = Workers(log, settings.keep_workers)
    if FLAGS.vocabularies:
        settings.vocabularies = tuple(map(int, FLAGS.vocabularies))
    if FLAGS.dims:
        settings.dims = tuple(map(int, FLAGS.dims))
    if FLAGS.shares:
        settings.shares = tuple(map(float, FLAGS.shares))
    settings.rounds = FLAGS.rounds or settings.rounds
    settings.peers = PEERS if FLAGS.peers else ()
    for peer in settings.peers:
        if not python_of(peer).exists():
            raise app.UsageError(f"{python_of(peer)} is missing: run `make bench-peers`")
    return settings


def hardware():
    """What the figures depend on."""
    cpu = pathlib.Path("/proc/cpuinfo").read_text().split("model name\t: ")[1].split("\n")[0]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / 2**30, 1),
        "kernel": platform.release(),
        "load_average": os.getloadavg(),
    }


def describe(settings):
    """Versions of the systems, and the bandwidth of a copy."""
    systems = ("gather", "tiered", "dense", *settings.peers)
    with settings.workers({name: name for name in systems}) as processes:
        versions = {name: process.call("describe") for name, process in processes.items()}
        return versions, processes["gather"].call("copy_bandwidth")


def fits(settings, vocabulary, dim):
    """Whether the systems, which are all there at once, have room in memory."""
    floats = 2 + 1 + 1 + 2 * 2 + (4 + 1) * bool(settings.peers)
    needed = vocabulary * (floats * 4 * dim + 100)
    with open("/proc/meminfo") as lines:
        fields = dict(line.split(":") for line in lines)
    available = int(fields["MemAvailable"].split()[0]) * 1024
    if needed < 0.9 * available:
        return True
    print(f"left out: {vocabulary:,} rows of dim {dim} need {needed / 2**30:.0f} GiB")
    return False


def run(settings):
    """Yields the results of the cases that the flags ask for."""
    if "memory" in FLAGS.cases:
        for dim in settings.dims:
            for vocabulary in settings.vocabularies:
                if fits(settings, vocabulary, dim):
                    yield from cases.in_memory(settings, vocabulary, dim)
    if "fit" in FLAGS.cases:
        for optimizer in ("adagrad", "adam"):
            yield from cases.fit(settings, settings.main, cases.MODEL_DIM, optimizer)
    if "columns" in FLAGS.cases:
        yield from cases.columns(settings, settings.main, cases.MODEL_DIM)
    if "budgets" in FLAGS.cases:
        yield from out_of_memory.budgets(settings, settings.large, cases.MODEL_DIM)
    if "growth" in FLAGS.cases:
        sizes = (settings.fewest, settings.large)
        yield from out_of_memory.growth(settings, sizes, cases.MODEL_DIM)


def main(_):
    output = pathlib.Path(FLAGS.output)
    output.mkdir(parents=True, exist_ok=True)
    start = time.time()
    with open(output / "log.txt", "w") as log:
        settings = settings_of_flags(log)
        versions, bandwidth = describe(settings)
        results = {
            "hardware": hardware(),
            "versions": versions,
            "copy_bytes_per_second": bandwidth,
            "size": FLAGS.size,
            "batch": settings.batch,
            "results": [],
        }
        print(f"{results['hardware']}; a copy moves {bandwidth / 1e9:.1f} GB/s", flush=True)
        for result in run(settings):
            print(result, flush=True)
            results["results"].append(result.to_json())
            (output / "results.json").write_text(json.dumps(results, indent=1))
    print(f"{output / 'results.json'}: {time.time() - start:.0f} s")
    settings.workers.close()
    if FLAGS.report:
        report.write(results, ROOT / "docs" / "benchmarks")


if __name__ == "__main__":
    app.run(main)
