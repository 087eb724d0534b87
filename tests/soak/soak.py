"""Trains on a store with a tiny budget for a while, and asserts that nothing grows.

    python tests/soak/soak.py [--minutes=30] [--directory=DIR]

A model with two embeddings trains on random ids of many more rows than the budget holds, looks
rows up for evaluation, commits, checkpoints to a rotating CheckpointManager, exports, and
sometimes restores. Rows all exist after the warm-up, a tenth of the time. From then on resident
memory, open files, threads and bytes on disk must be flat: the highest of the last third of the
samples may exceed the highest of the first third by no more than `TOLERANCES` say. (Highest,
because compactions, commits and checkpoints make disk use rise and fall all the time.)
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time

import numpy as np
import tensorflow as tf
import tf_keras

import tf_hps

ROWS, DIM, BATCH, LENGTH = 20_000, 16, 256, 8
DRAM_BYTES = 256 << 10
# Of growth: a part of the highest in the first third, and a number.
TOLERANCES = {
    "resident_mib": (0.01, 2),
    "open_files": (0.1, 10),  # compactions make it rise and fall
    "threads": (0, 0),
    "disk_mib": (0.15, 2),
}


def make_model(store):
    """Two embeddings and a dense layer, with Adagrad."""
    ids = tf_keras.Input([LENGTH], dtype="int64")
    embedded = [
        tf_hps.HPSEmbedding(None, DIM, store=store, name=name)(ids) for name in ("first", "second")
    ]
    features = tf_keras.layers.Flatten()(tf.concat(embedded, -1))
    model = tf_keras.Model(ids, tf_keras.layers.Dense(1, "sigmoid")(features))
    model.compile(tf_hps.HPSOptimizer(tf_keras.optimizers.Adagrad(0.05)), "binary_crossentropy")
    return model


def disk_mib(folder):
    """Bytes of all files, a file with several names once."""
    sizes = {}
    for path, _, files in os.walk(folder):
        for name in files:
            try:
                info = os.stat(os.path.join(path, name))
            except FileNotFoundError:  # LevelDB removes files meanwhile
                continue
            sizes[info.st_ino] = info.st_size
    return sum(sizes.values()) / 2**20


def sample(folder):
    """What must be flat, now."""
    with open("/proc/self/status") as file:
        status = dict(line.split(":", 1) for line in file)
    return {
        "resident_mib": int(status["VmRSS"].split()[0]) / 1024,
        "open_files": len(os.listdir("/proc/self/fd")),
        "threads": int(status["Threads"]),
        "disk_mib": disk_mib(folder),
    }


class Soak:
    """The model, its store and its checkpoints in `folder`."""

    def __init__(self, folder):
        self.folder = folder
        self.random = np.random.default_rng(1)
        self.store = tf_hps.Store(os.path.join(folder, "store"), dram_bytes=DRAM_BYTES)
        self.model = make_model(self.store)
        self.manager = tf.train.CheckpointManager(
            tf.train.Checkpoint(model=self.model), os.path.join(folder, "checkpoints"), 2
        )
        self.rounds = 0
        for first in range(0, ROWS, BATCH * LENGTH):  # every row, once
            self.train(np.arange(first, first + BATCH * LENGTH).reshape(BATCH, LENGTH) % ROWS)

    def train(self, ids):
        labels = (ids.sum(1, keepdims=True) % 2).astype(np.float32)
        loss = self.model.train_on_batch(ids, labels)
        assert np.isfinite(loss), loss

    def round(self):
        """A few steps, and one of each other thing."""
        for _ in range(10):
            self.train(self.random.integers(0, ROWS, [BATCH, LENGTH]))
        self.model.test_on_batch(
            self.random.integers(0, 10 * ROWS, [BATCH, LENGTH]), np.zeros([BATCH, 1])
        )
        self.store.commit()
        if self.rounds % 3 == 0:
            self.manager.save()
        if self.rounds % 10 == 9:
            self.manager.checkpoint.restore(self.manager.latest_checkpoint).assert_consumed()
        if self.rounds % 5 == 0:
            for table in self.store.tables.values():
                rows = sum(len(keys) for keys, _ in table.export(chunk_rows=1000))
                assert rows == ROWS, rows
        self.rounds += 1


def grown(samples):
    """Names what grew beyond its tolerance, and prints the figures of all."""
    third = len(samples) // 3
    result = []
    for name, (part, number) in TOLERANCES.items():
        first = max(s[name] for s in samples[:third])
        last = max(s[name] for s in samples[-third:])
        limit = first * (1 + part) + number
        print(f"{name}: first third at most {first:.1f}, last third {last:.1f}, limit {limit:.1f}")
        if last > limit:
            result.append(name)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--directory", help="where to make a folder for it; default: TMPDIR")
    arguments = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="tf_hps_soak_", dir=arguments.directory)
    start = time.monotonic()
    end = start + 60 * arguments.minutes
    soak = Soak(folder)
    samples = []
    next_report = start
    while time.monotonic() < end:
        soak.round()
        now = time.monotonic()
        samples.append({"seconds": now - start, **sample(folder)})
        if now >= next_report:
            print(json.dumps({k: round(v, 1) for k, v in samples[-1].items()}), flush=True)
            next_report = now + 3 * arguments.minutes
    evictions = soak.store.stats()["tables"]["first"]["dram"]["evictions"]
    assert evictions > 10 * ROWS, f"the budget was not tiny: {evictions} evictions"
    flat = [s for s in samples if s["seconds"] > 6 * arguments.minutes]
    print(f"{soak.rounds} rounds, {len(flat)} samples after the warm-up")
    if len(flat) < 12:
        sys.exit("FAILED: too few samples; give it more minutes")
    failures = grown(flat)
    soak.store.close()
    shutil.rmtree(folder)
    if failures:
        sys.exit(f"FAILED: {', '.join(failures)} grew")
    print("soak: flat")


if __name__ == "__main__":
    main()
