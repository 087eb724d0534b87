"""What the systems under TensorFlow have in common: tapes, optimizers and `fit`."""

import os

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import time

import numpy as np
import tensorflow as tf
import tf_keras

from benchmarks import workload
from benchmarks.systems.base import System


def optimizer_of(name):
    """A tf_keras optimizer. Adagrad's accumulators start at 0, as those of all peers do."""
    if name == "adam":
        return tf_keras.optimizers.Adam(0.001)
    return tf_keras.optimizers.Adagrad(
        workload.LEARNING_RATE, initial_accumulator_value=0.0, epsilon=workload.EPSILON
    )


class EpochTimer(tf_keras.callbacks.Callback):
    """Takes the time of an epoch's steps, without what `fit` does before and after."""

    def on_epoch_begin(self, epoch, logs=None):
        self._start = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        self.seconds = time.perf_counter() - self._start


class KerasSystem(System):
    """Subclasses implement `_embed`, which returns the layers that make [batch, 26, dim]."""

    def describe(self):
        return {
            "tensorflow": tf.__version__,
            "tf_keras": tf_keras.__version__,
            "threads": len(os.sched_getaffinity(0)),
        }

    def _prepare(self, index):
        return tf.constant(self._ids(index))

    def _ids(self, index):
        return workload.key_of(index)

    def _wrap(self, optimizer):
        return optimizer

    def _embed(self, ids):
        raise NotImplementedError

    def _update_function(self, layer, optimizer):
        """Returns the operation "update": lookup, gradient and one step of the optimizer."""
        gradient = tf.constant(workload.gradients(self.batch, self.dim))

        @tf.function
        def update(ids):
            with tf.GradientTape() as tape:
                rows = layer(ids, training=True)
            variables = layer.trainable_weights
            found = tape.gradient(rows, variables, output_gradients=gradient)
            optimizer.apply_gradients(zip(found, variables, strict=True))

        return update

    def setup_fit(self, optimizer):
        """Builds the model: embedding, Dense 64, Dense 1."""
        ids = tf_keras.Input([workload.FEATURES], dtype="int64")
        flat = tf_keras.layers.Flatten()(self._embed(ids))
        dense = [
            tf_keras.layers.Dense(64, "relu"),
            tf_keras.layers.Dense(1, "sigmoid"),
        ]
        self._model = tf_keras.Model(ids, dense[1](dense[0](flat)))
        weights = workload.dense_weights(workload.FEATURES * self.dim)
        dense[0].set_weights(weights[:2])
        dense[1].set_weights(weights[2:])
        self._model.compile(self._wrap(optimizer_of(optimizer)), "binary_crossentropy")
        labels = np.stack([workload.labels(index) for index in self._index])
        self._data = tf.stack(self._batches), tf.constant(labels)
        self._steps = 0
        self._losses = []

    def _next_batches(self, count):
        """The batches after those of the last call: whole ones, so that there is little to do."""
        ids, labels = self._data
        steps = tf.data.Dataset.range(self._steps, self._steps + count)
        self._steps += count
        return self._ahead(steps.map(lambda i: (ids[i % len(ids)], labels[i % len(ids)])))

    def _ahead(self, batches):
        return batches.prefetch(2)

    def measure_fit(self, count):
        """One `fit` of `count` steps. Returns the seconds of each, on average."""
        timer = EpochTimer()
        data = self._next_batches(count)
        history = self._model.fit(data, verbose=0, callbacks=[timer])
        self._losses += history.history["loss"]
        return [timer.seconds / count]

    def facts(self):
        return {"losses": getattr(self, "_losses", [])}

    def reset(self):
        for name in ("_model", "_data", "_batches", "_cycle", "_update"):
            self.__dict__.pop(name, None)
        tf_keras.backend.clear_session()
