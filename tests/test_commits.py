"""Commits: kept, opened again, in the middle of training, and what they cost in memory."""

import sys

import fresh
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import tf_hps

IDS = np.random.default_rng(3).integers(0, 3000, (4096, 3))
LABELS = (IDS.sum(axis=1) % 5 > 2).astype(np.float32)


def model_in(store):
    tf_keras.utils.set_random_seed(7)
    layer = tf_hps.HPSEmbedding(None, 8, store=store, name="ids")
    model = tf_keras.Sequential(
        [
            tf_keras.Input([3], dtype=tf.int64),
            layer,
            tf_keras.layers.Flatten(),
            tf_keras.layers.Dense(1, activation="sigmoid"),
        ]
    )
    model.compile(tf_hps.HPSOptimizer(tf_keras.optimizers.Adagrad(0.1)), "binary_crossentropy")
    return model, layer


class CommitEvery(tf_keras.callbacks.Callback):
    def __init__(self, store, batches):
        super().__init__()
        self.store, self.batches, self.commits = store, batches, []

    def on_train_batch_end(self, batch, logs=None):
        if batch % self.batches == 0:
            self.commits.append((self.store.commit(), self.store.dense_step))


def test_the_last_commits_stay_and_can_be_opened(tmp_path):
    with tf_hps.Store(tmp_path / "s", keep_commits=2) as store:
        table = tf_hps.Table("t", 2, store=store)
        for value in (1.0, 2.0, 3.0):
            table.upsert([7], [[value, value]])
            store.commit()
        assert store.commits == [2, 3]
        store.close(commit=False)
    with tf_hps.Store(tmp_path / "s", keep_commits=2, commit=2) as store:
        table = tf_hps.Table("t", 2, store=store)
        assert table.lookup([7]).numpy().tolist() == [[2.0, 2.0]]
        assert store.commit() == 4  # never the number of another commit
        assert store.commits == [3, 4]


def test_a_commit_that_is_gone_is_named(tmp_path):
    with tf_hps.Store(tmp_path / "s") as store:
        for _ in range(3):
            store.commit()
    with pytest.raises(tf.errors.NotFoundError, match="no commit 1 .*has commit 3$"):
        tf_hps.Store(tmp_path / "s", commit=1)


def test_a_store_remembers_how_many_commits_it_keeps(tmp_path):
    with tf_hps.Store(tmp_path / "s", keep_commits=3) as store:
        store.commit()
    for value in range(4):
        with tf_hps.Store(tmp_path / "s") as store:
            tf_hps.Table("t", 1, store=store).upsert([1], [[value]])
    with tf_hps.Store(tmp_path / "s") as store:
        assert store.commits == [3, 4, 5]


def test_who_only_looks_commits_nothing(tmp_path):
    with tf_hps.Store(tmp_path / "s", keep_commits=2) as store:
        table = tf_hps.Table("t", 1, store=store)
        for value in (1.0, 2.0):
            table.upsert([1], [[value]])
            store.commit()
    for commit in (None, 1, 2):
        with tf_hps.Store(tmp_path / "s", commit=commit) as store:
            table = tf_hps.Table("t", 1, store=store)
            assert table.lookup([1, 5]).numpy()[0, 0] == (commit or 2)
            assert table.size() == 1 and store.stats()["store"]["commit"] == 2
    with tf_hps.Store(tmp_path / "s") as store:
        assert store.commits == [1, 2]


def test_commits_share_the_files_of_rows_that_did_not_change(tmp_path):
    with tf_hps.Store(tmp_path / "s", dram_bytes="1MiB", keep_commits=3) as store:
        table = tf_hps.Table("t", 16, store=store)
        table.upsert(np.arange(20000), np.ones([20000, 16], np.float32))
        for _ in range(3):
            store.commit()
        files = list((tmp_path / "s" / "commits").rglob("*.ldb"))
        inodes = {f.stat().st_ino for f in files}
        assert len(files) >= 3 * len(inodes) > 0


@pytest.mark.parametrize("dram_bytes", ["64MiB", "60KB"])
def test_commits_in_the_middle_of_fit_change_no_result(tmp_path, dram_bytes):
    results = []
    for name, callbacks in (("plain", False), ("committed", True)):
        with tf_hps.Store(tmp_path / name, dram_bytes=dram_bytes) as store:
            model, layer = model_in(store)
            commit = CommitEvery(store, 3)
            losses = model.fit(
                IDS, LABELS, 128, epochs=2, verbose=0, callbacks=[commit] if callbacks else []
            ).history["loss"]
            results.append((losses, fresh.contents(layer.table)))
            if callbacks:
                assert len(commit.commits) > 10
                assert [step for _, step in commit.commits][:3] == [1, 4, 7]
    (losses, rows), (committed_losses, committed_rows) = results
    assert losses == committed_losses
    fresh.assert_same_contents(committed_rows, rows)


def test_a_reopened_store_says_how_far_its_rows_are_trained(tmp_path):
    with tf_hps.Store(tmp_path / "s") as store:
        model, _ = model_in(store)
        model.fit(IDS[:640], LABELS[:640], 64, verbose=0)
    with tf_hps.Store(tmp_path / "s") as store:
        assert store.dense_step == 10


MEMORY = """
import resource
rows, dim, budget, folder = 1_200_000, 16, 5 << 20, sys.argv[1]
key = lambda i: (i.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).astype(np.int64)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
def work(store, rows):
    table = tf_hps.Table("t", dim, store=store)
    for begin in range(0, rows, 4096):
        keys = key(np.arange(begin, min(begin + 4096, rows)))
        table.lookup(keys, training=True)
        table.upsert(keys, np.ones([len(keys), dim], np.float32))
        if begin % (4096 * 20) == 0: store.commit()
    store.commit()
    return table
with tf_hps.Store(folder + "/warm", dram_bytes=budget) as store:  # TensorFlow's own
    sum(len(k) for k, _ in work(store, 8192).export(chunk_rows=4096))
base = peak()
with tf_hps.Store(folder + "/s", dram_bytes=budget) as store:
    table = work(store, rows)
    assert sum(len(k) for k, _ in table.export(chunk_rows=4096)) == rows
    checkpoint = tf.train.Checkpoint(table=table)
    checkpoint.restore(checkpoint.save(folder + "/c")).assert_consumed()
    assert table.size() == rows
    stats = store.stats()
    assert stats["store"]["bytes_written"] > rows * dim * 4, stats
print(peak() - base)
"""


def test_memory_stays_within_the_budget_and_the_stated_overhead(tmp_path):
    rows, budget = 1_200_000, 5 << 20  # of some 95 bytes in dram: twenty budgets
    grown = int(fresh.run(MEMORY, tmp_path).split()[-1])
    # docs/design.md: write buffers, indexes and filters of files, a batch's rows.
    overhead = (2 << 20) + rows * 6 + (24 << 20)
    assert grown <= budget + overhead, f"{grown} bytes, {sys.platform}"
