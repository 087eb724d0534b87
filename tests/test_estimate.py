"""tf_hps.estimate against real stores."""

import numpy as np
import pytest
import tf_keras

import tf_hps
from tf_hps import _ops

_TOLERANCE = 0.15  # as the docstring of estimate says


@pytest.mark.parametrize("dim", [2, 8, 32])
@pytest.mark.parametrize("keys", ["dense", "random"])
@pytest.mark.parametrize("optimizer", [None, "sgd", "momentum", "adagrad", "adam", "amsgrad"])
def test_bytes_are_those_of_a_store(optimizer, keys, dim, tmp_path):
    rows = 30_000
    ids = np.arange(rows) if keys == "dense" else _random(rows)
    with tf_hps.Store(tmp_path, dram_bytes="64MiB") as store:
        table = tf_hps.Table("user", dim, store=store)
        table.upsert(ids, np.ones([rows, dim], np.float32))
        if optimizer:
            _train(table, optimizer, ids)
        _ops.ops.tf_hps_store_compact(store.handle)  # training rewrote the rows
        store.commit()
        dram = store.stats()["tables"]["user"]["dram"]
        files = sum(f.stat().st_size for f in tmp_path.glob("commits/*/*/*.ldb"))
    estimate = tf_hps.estimate(rows, dim, optimizer, dram_bytes="64MiB")
    assert dram["rows"] == estimate.dram_rows == rows
    assert dram["bytes"] == pytest.approx(estimate.dram_bytes, rel=_TOLERANCE)
    assert files == pytest.approx(estimate.ssd_bytes, rel=_TOLERANCE)


def _random(rows):
    return np.unique(np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 2 * rows))[:rows]


def _train(table, optimizer, ids):
    """One step on all rows, so that they have the optimizer's state."""
    kinds = {
        "momentum": tf_keras.optimizers.SGD(0.1, momentum=0.9),
        "amsgrad": tf_keras.optimizers.Adam(amsgrad=True),
    }
    inner = kinds.get(optimizer) or tf_keras.optimizers.get(optimizer)
    model = tf_keras.Sequential([tf_hps.HPSEmbedding(None, table.dim, table=table)])
    model.compile(tf_hps.HPSOptimizer(inner), "mse")
    model.train_on_batch(ids, np.zeros([len(ids), table.dim]))


def test_a_budget_holds_as_many_rows_as_it_says(tmp_path):
    rows, budget = 50_000, 2 << 20
    with tf_hps.Store(tmp_path, dram_bytes=budget) as store:
        table = tf_hps.Table("user", 16, store=store)
        table.upsert(np.arange(rows), np.ones([rows, 16], np.float32))
        held = store.stats()["tables"]["user"]["dram"]["rows"]
    estimate = tf_hps.estimate(rows, 16, None, budget)
    assert held < rows
    assert held == pytest.approx(estimate.dram_rows, rel=0.15)
    assert estimate.dram_bytes <= budget


def test_arguments():
    assert tf_hps.estimate(0, 4).ssd_bytes == 0
    adam = tf_keras.optimizers.Adam()
    wrapped = tf_hps.HPSOptimizer(tf_keras.optimizers.Adam())
    for optimizer in ("adam", "adam(amsgrad=0)", adam, wrapped):
        assert tf_hps.estimate(10, 4, optimizer) == tf_hps.estimate(10, 4, "Adam")
    assert tf_hps.estimate(10, 4, dram_bytes=0).dram_rows == 0
    for arguments in [(-1, 4), (10, 0), (10, 4, "ftrl"), (10, 4, "adam", "much")]:
        with pytest.raises(ValueError):
            tf_hps.estimate(*arguments)
