"""Time and bytes of a commit, against what changed and against a full copy.

    python benchmarks/commit_cost.py --rows=5000000

A table is filled, committed, and then a share of its rows is updated before each further
commit. Between commits there is a pause, in which a training run would go on and LevelDB
compacts. The full copy is `cp` of the last commit's files, all in the page cache, with a
sync, on the same disk. Prints JSON.
"""

import json
import os
import shutil
import statistics
import tempfile
import time

import numpy as np
from absl import app, flags

import tf_hps

FLAGS = flags.FLAGS
flags.DEFINE_integer("rows", 5_000_000, "rows of the table", lower_bound=1000)
flags.DEFINE_integer("dim", 16, "length of a row", lower_bound=1)
flags.DEFINE_float("changed", 0.01, "share of the rows that changes before a commit")
flags.DEFINE_integer("repeats", 5, "commits to take the median of", lower_bound=1)
flags.DEFINE_float("pause", 1.5, "seconds between commits", lower_bound=0)
flags.DEFINE_string("dram_bytes", "2GiB", "the store's budget")


def key_of(index):
    """Scatters row numbers over the int64 range."""
    return (index.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).astype(np.int64)


def fill(table, rows, dim, chunk=250_000):
    for begin in range(0, rows, chunk):
        index = np.arange(begin, min(begin + chunk, rows))
        table.upsert(key_of(index), np.full([len(index), dim], 1.0, np.float32))


def timed(call):
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def copy_with_sync(source, target):
    shutil.copytree(source, target)
    os.sync()


def commit_times(store, table, rng):
    changed = int(FLAGS.rows * FLAGS.changed)
    seconds = []
    for repeat in range(FLAGS.repeats):
        index = rng.choice(FLAGS.rows, changed, replace=False)
        values = np.full([changed, FLAGS.dim], 2.0 + repeat, np.float32)
        table.upsert(key_of(index), values)
        time.sleep(FLAGS.pause)
        seconds.append(timed(store.commit)[0])
        got = table.lookup(key_of(index[:1])).numpy()
        assert (got == values[:1]).all(), "a committed row reads back wrong"
    return seconds


def main(_):
    with tempfile.TemporaryDirectory(prefix="tf_hps_commit_") as folder:
        store = tf_hps.Store(os.path.join(folder, "store"), dram_bytes=FLAGS.dram_bytes)
        table = tf_hps.Table("rows", FLAGS.dim, store=store)
        fill(table, FLAGS.rows, FLAGS.dim)
        first, _ = timed(store.commit)
        seconds = commit_times(store, table, np.random.default_rng(0))
        last = os.path.join(store.path, "commits", f"{store.commit():06}")
        copies = []
        for repeat in range(FLAGS.repeats):
            target = os.path.join(folder, f"copy-{repeat}")
            copies.append(timed(lambda to=target: copy_with_sync(last, to))[0])
            shutil.rmtree(target)
        store.close(commit=False)
    median, full = statistics.median(seconds), statistics.median(copies)
    report = {
        "rows": FLAGS.rows,
        "dim": FLAGS.dim,
        "changed": FLAGS.changed,
        "first_commit_seconds": first,
        "commit_seconds": seconds,
        "full_copy_seconds": copies,
        "commit_over_full_copy": median / full,
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    app.run(main)
