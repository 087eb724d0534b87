"""Random sequences of a table's whole interface against a plain dict, by Hypothesis.

A failure prints the shortest sequence of calls that Hypothesis finds for it. More examples:
`HYPOTHESIS_PROFILE=long make py-test PYTEST_ARGS="-k properties"`.
"""

import os
import shutil
import tempfile

import numpy as np
import tensorflow as tf
import tf_keras
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import tf_hps
from tf_hps.anchor import anchor_of

DIM = 3
BUDGETS = [0, 2000, "16KiB", "64MiB"]
EXTREMES = [np.iinfo(np.int64).min, -2, -1, 0, 1, np.iinfo(np.int64).max]

settings.register_profile(
    "short", max_examples=25, stateful_step_count=30, derandomize=True, deadline=None
)
settings.register_profile("long", max_examples=1000, stateful_step_count=60, deadline=None)

single_keys = st.lists(st.sampled_from(EXTREMES) | st.integers(-300, 300), max_size=12)
key_ranges = st.builds(
    lambda first, n: list(range(first, first + n)), st.integers(-400, 400), st.integers(0, 150)
)
key_lists = single_keys | key_ranges
seeds = st.integers(0, 2**16)


def random_values(keys, seed):
    """Returns float32 values for `keys`, `[n, DIM]`."""
    return np.random.default_rng(seed).normal(size=[len(keys), DIM]).astype(np.float32)


class Adagrad:
    """tf_keras's Adagrad in numpy, a row at a time."""

    slots = 1
    learning_rate, epsilon, initial = np.float32(0.1), np.float32(1e-7), np.float32(0.1)

    def optimizer(self):
        return tf_keras.optimizers.Adagrad(0.1, initial_accumulator_value=0.1, epsilon=1e-7)

    def fresh(self):
        return np.full(DIM, self.initial, np.float32)

    def update(self, weights, state, gradient):
        state = state + gradient * gradient
        return weights + (-self.learning_rate * gradient) / np.sqrt(state + self.epsilon), state


class Sgd:
    """tf_keras's SGD without momentum."""

    slots = 0

    def optimizer(self):
        return tf_keras.optimizers.SGD(0.1)

    def fresh(self):
        return np.zeros(0, np.float32)

    def update(self, weights, state, gradient):
        return weights + -gradient * np.float32(0.1), state


class TableMachine(RuleBasedStateMachine):
    """A table, and `rows`: dict of key -> (weights, state) that it must equal bit by bit."""

    @initialize(
        budget=st.sampled_from(BUDGETS), eviction=st.sampled_from(["lfu", "lru"]), sgd=st.booleans()
    )
    def start(self, budget, eviction, sgd):
        self.folder = tempfile.mkdtemp(prefix="tf_hps_properties_")
        self.eviction = eviction
        self.update_rule = Sgd() if sgd else Adagrad()
        self.optimizer = tf_hps.HPSOptimizer(self.update_rule.optimizer())
        self.store = None
        self.rows, self.committed, self.saved = {}, {}, None
        self.saves = 0
        self.open(budget)
        # An empty step gives rows their state from the start.
        self.train([], 0)
        self.commit()

    def open(self, budget):
        self.store = tf_hps.Store(
            os.path.join(self.folder, "store"), dram_bytes=budget, eviction=self.eviction
        )
        self.table = tf_hps.Table("t", DIM, store=self.store, seed=5)

    def teardown(self):
        if getattr(self, "store", None) is not None:
            self.check_contents()
            self.store.close()
            shutil.rmtree(self.folder)

    def initial(self, keys):
        """Rows of unseen keys, from a table that nothing has happened to."""
        with tf_hps.Store(dram_bytes=0) as store:
            return tf_hps.Table("t", DIM, store=store, seed=5).lookup(keys).numpy()

    def create(self, keys):
        new = [key for key in dict.fromkeys(keys) if key not in self.rows]
        if new:
            fresh = self.update_rule.fresh()
            self.rows.update(
                (k, (row, fresh)) for k, row in zip(new, self.initial(new), strict=True)
            )

    @rule(keys=key_lists, training=st.booleans(), narrow=st.booleans())
    def lookup(self, keys, training, narrow):
        narrow = narrow and all(abs(key) < 2**31 for key in keys)
        received = self.table.lookup(
            np.array(keys, np.int32 if narrow else np.int64), training=training
        ).numpy()
        if training:
            self.create(keys)
        assert received.shape == (len(keys), DIM)
        unseen = [key for key in keys if key not in self.rows]
        initial = dict(zip(unseen, self.initial(unseen), strict=True)) if unseen else {}
        for key, row in zip(keys, received, strict=True):
            expected = self.rows[key][0] if key in self.rows else initial[key]
            np.testing.assert_array_equal(row, expected, f"key {key}")

    @rule(keys=key_lists, seed=seeds)
    def upsert(self, keys, seed):
        values = random_values(keys, seed)
        self.table.upsert(np.array(keys, np.int64), values)
        for key, row in zip(keys, values, strict=True):
            state = self.rows[key][1] if key in self.rows else self.update_rule.fresh()
            self.rows[key] = (row, state)

    @rule(keys=key_lists)
    def remove(self, keys):
        self.table.remove(np.array(keys, np.int64))
        for key in keys:
            self.rows.pop(key, None)

    @rule(keys=key_lists)
    def contains(self, keys):
        received = self.table.contains(np.array(keys, np.int64))
        assert received.tolist() == [key in self.rows for key in keys]

    @rule(keys=key_lists)
    def prefetch(self, keys):
        data = tf.data.Dataset.from_tensors(np.asarray(keys, np.int64))
        list(tf_hps.prefetch(data, {None: self.table}))

    @rule(keys=key_lists, seed=seeds)
    def train(self, keys, seed):
        gradients = random_values(keys, seed)
        slices = tf.IndexedSlices(tf.constant(gradients), tf.constant(keys, tf.int64))
        self.optimizer.apply_gradients([(slices, anchor_of(self.table))])
        self.create(keys)
        sums = {}
        for key, gradient in zip(keys, gradients, strict=True):
            sums[key] = sums.get(key, np.zeros(DIM, np.float32)) + gradient
        for key, gradient in sums.items():
            self.rows[key] = self.update_rule.update(*self.rows[key], gradient)

    @rule()
    def commit(self):
        self.store.commit()
        self.committed = dict(self.rows)

    @rule(budget=st.sampled_from(BUDGETS), commit=st.booleans())
    def reopen(self, budget, commit):
        self.store.close(commit=commit)
        if commit:
            self.committed = dict(self.rows)
        self.rows = dict(self.committed)
        self.open(budget)

    @rule()
    def save(self):
        self.saves += 1
        self.saved = tf.train.Checkpoint(table=self.table).write(
            os.path.join(self.folder, f"checkpoint-{self.saves}")
        )
        self.saved_rows = dict(self.rows)

    @precondition(lambda self: self.saved is not None)
    @rule()
    def restore(self):
        tf.train.Checkpoint(table=self.table).read(self.saved).assert_consumed()
        self.rows = dict(self.saved_rows)

    @rule(chunk_rows=st.sampled_from([1, 7, 65536]))
    def export(self, chunk_rows):
        keys, weights, states = [], [], []
        for chunk in self.table.export(chunk_rows=chunk_rows, state=True):
            assert 0 < len(chunk[0]) <= chunk_rows
            keys.extend(chunk[0].tolist())
            weights.extend(chunk[1])
            states.extend(chunk[2])
        assert keys == sorted(self.rows)
        for key, row, state in zip(keys, weights, states, strict=True):
            np.testing.assert_array_equal(row, self.rows[key][0], f"key {key}")
            np.testing.assert_array_equal(state, self.rows[key][1], f"state of key {key}")

    def check_contents(self):
        self.export(65536)

    @invariant()
    def sizes_agree(self):
        if getattr(self, "store", None) is not None:
            assert self.table.size() == len(self.rows)


def test_any_sequence_of_calls_equals_a_dict():
    profile = settings.get_profile(os.environ.get("HYPOTHESIS_PROFILE", "short"))
    run_state_machine_as_test(
        TableMachine, settings=settings(profile, suppress_health_check=list(HealthCheck))
    )
