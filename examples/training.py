"""Trains a click model, shows progress, and keeps a record of every step."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

import numpy as np
import report
import tf_keras
from movielens import Features

import tf_hps

EVERY = 100  # steps between lines of progress
SAMPLE = 10  # steps between looks at the store's counters


@dataclasses.dataclass(frozen=True)
class Examples:
    """Features of n impressions and whether each was clicked, [n]."""

    features: Features
    clicks: np.ndarray

    def __len__(self) -> int:
        return len(self.clicks)

    def __getitem__(self, rows: np.ndarray | slice) -> Examples:
        features = {field: keys[rows] for field, keys in self.features.items()}
        return Examples(features, self.clicks[rows])

    def map(self, change: Callable[[Features], Features]) -> Examples:
        """The examples with their features changed."""
        return Examples(change(self.features), self.clicks)


class Recorder(tf_keras.callbacks.Callback):
    """Appends to a `History` during `fit`.

    Args:
      history: what is appended to.
      epochs: how many there will be.
      store: whose counters are recorded; `None` for a model without tables.
    """

    def __init__(self, history: report.History, epochs: int, store: tf_hps.Store | None):
        super().__init__()
        self.history = history
        self.epochs = epochs
        self.store = store

    def on_epoch_begin(self, epoch, logs=None):
        """Leaves out what an evaluation did since the last epoch."""
        self._epoch = epoch
        self._used = report.rows_used(self.store) if self.store else np.zeros(3)

    def on_train_batch_begin(self, batch, logs=None):
        """Makes `logs` hold this batch's loss instead of the mean since the epoch began."""
        self.model.reset_metrics()
        self._start = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        """Records the step; now and then prints a line."""
        self.history.seconds += time.perf_counter() - self._start
        self.history.losses.append(float(logs["loss"]))
        if self.store and (batch + 1) % SAMPLE == 0:
            self._record_rows()
        if (batch + 1) % EVERY == 0 or batch + 1 == self.params["steps"]:
            self._print_progress(batch + 1)

    def _record_rows(self):
        used = report.rows_used(self.store)
        self.history.rows_used.append((len(self.history.losses), used - self._used))
        self._used = used

    def _print_progress(self, step: int):
        line = (
            f"  epoch {self._epoch + 1}/{self.epochs}"
            f"  step {step:>4}/{self.params['steps']}"
            f"  loss {np.mean(self.history.losses[-EVERY:]):.4f}"
        )
        if self.store and self.history.rows_used:
            used = sum(rows for _, rows in self.history.rows_used[-EVERY // SAMPLE :])
            line += f"  rows found in DRAM {used[0] / used.sum():.0%}"
        print(line, flush=True)


def train(
    model: tf_keras.Model,
    examples: Examples,
    test: Examples,
    *,
    epochs: int,
    batch_size: int,
    seed: int,
    store: tf_hps.Store | None = None,
) -> report.History:
    """Trains a compiled model; each epoch in another order, which the seed alone decides.

    What is left over after the last full batch of an epoch is left out: a step on a few examples
    would count as much as one on many.
    """
    history = report.History()
    recorder = Recorder(history, epochs, store)
    for epoch in range(epochs):
        order = np.random.default_rng([seed, epoch]).permutation(len(examples))
        shuffled = examples[order[: len(order) // batch_size * batch_size]]
        model.fit(
            shuffled.features,
            shuffled.clicks,
            batch_size=batch_size,
            shuffle=False,
            initial_epoch=epoch,
            epochs=epoch + 1,
            callbacks=[recorder],
            verbose=0,
        )
        scores = model.predict(test.features, batch_size=2048, verbose=0)[:, 0]
        history.aucs.append(report.auc(test.clicks, scores))
        print(f"  epoch {epoch + 1}: test AUC {history.aucs[-1]:.4f}", flush=True)
    return history
