"""Tables: rows by key."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from fresh import contents

import tf_hps
from tf_hps import initializers

EXTREMES = [0, -1, -2, 1, np.iinfo(np.int64).min, np.iinfo(np.int64).max, 2**40, -(2**40)]


@pytest.fixture
def table(store):
    return tf_hps.Table("user", 4, store=store)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 1, 3), (0,), (2, 0)])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("training", [False, True])
def test_lookup_takes_any_rank_and_both_int_types(table, shape, dtype, training):
    keys = np.arange(np.prod(shape, dtype=int), dtype=dtype).reshape(shape)
    rows = table.lookup(keys, training=training)
    assert rows.shape == (*shape, 4) and rows.dtype == tf.float32
    flat = table.lookup(keys.reshape(-1)).numpy()
    np.testing.assert_array_equal(rows.numpy().reshape(-1, 4), flat)


@pytest.mark.parametrize("dim", [1, 2, 3, 5, 16, 33])
def test_any_dim_works(store, dim):
    table = tf_hps.Table(f"dim{dim}", dim, store=store)
    values = np.random.default_rng(1).normal(size=[20, dim]).astype(np.float32)
    table.upsert(np.arange(20), values)
    np.testing.assert_array_equal(table.lookup(np.arange(20)).numpy(), values)
    assert table.lookup([100], training=True).shape == (1, dim)


def test_every_int64_is_a_key(table):
    values = np.arange(len(EXTREMES) * 4, dtype=np.float32).reshape(-1, 4)
    table.upsert(EXTREMES, values)
    np.testing.assert_array_equal(table.lookup(EXTREMES).numpy(), values)
    assert table.contains(EXTREMES).all() and table.size() == len(EXTREMES)
    np.testing.assert_array_equal(contents(table)[0], sorted(EXTREMES))
    table.remove(EXTREMES)
    assert table.size() == 0


def test_lookup_outside_training_changes_nothing(table):
    table.lookup([1, 2], training=True)
    before = contents(table)
    table.lookup([1, 3, 4, 3])
    assert table.size() == 2 and not table.contains([3, 4]).any()
    for received, expected in zip(contents(table), before, strict=True):
        np.testing.assert_array_equal(received, expected)


def test_unseen_key_reads_as_the_row_that_training_creates(table):
    looked = table.lookup([5, 6, 5]).numpy()
    created = table.lookup([6, 5], training=True).numpy()
    np.testing.assert_array_equal(looked, created[[1, 0, 1]])
    assert table.size() == 2 and looked.any()


def test_initial_rows_depend_on_seed_name_and_key_only(store):
    def rows(name, seed, keys):
        with tf_hps.Store() as store:
            return tf_hps.Table(name, 3, store=store, seed=seed).lookup(keys).numpy()

    np.testing.assert_array_equal(rows("a", 1, [1, 2]), rows("a", 1, [2, 1])[::-1])
    assert (rows("a", 1, [1]) != rows("a", 2, [1])).any()
    assert (rows("a", 1, [1]) != rows("b", 1, [1])).any()
    assert (rows("a", 1, [1]) != rows("a", 1, [2])).any()


def test_last_of_equal_keys_is_kept(table):
    table.upsert([1, 2, 1], [[1] * 4, [2] * 4, [3] * 4])
    np.testing.assert_array_equal(table.lookup([1, 2]).numpy(), [[3] * 4, [2] * 4])


def test_removed_key_starts_anew(table):
    initial = table.lookup([1, 2]).numpy()
    table.upsert([1, 2], np.ones([2, 4]))
    table.remove([1, 99])
    np.testing.assert_array_equal(table.contains([1, 2]), [False, True])
    np.testing.assert_array_equal(table.lookup([1]).numpy(), initial[:1])
    np.testing.assert_array_equal(table.lookup([1], training=True).numpy(), initial[:1])


def test_contains_and_size_are_plain_when_eager(table):
    table.upsert([[1, 2], [3, 4]], np.zeros([2, 2, 4]))
    found = table.contains(np.array([[1, 9], [4, 8]], np.int32))
    assert isinstance(found, np.ndarray) and found.dtype == bool
    np.testing.assert_array_equal(found, [[True, False], [True, False]])
    assert type(table.size()) is int and table.size() == 4


def test_all_methods_work_in_a_function(table):
    @tf.function
    def step(keys):
        table.upsert(keys, tf.ones([tf.shape(keys)[0], 4]))
        size = table.size()  # after the upsert: one table's changes keep their order
        rows = table.lookup(keys + 1, training=True)
        found = table.contains(keys + 1)
        table.remove(keys)
        return size, rows, found, table.size()

    size, rows, found, left = step(tf.constant([10, 20], tf.int64))
    assert size == 2 and rows.shape == (2, 4) and found.numpy().all() and left == 2
    np.testing.assert_array_equal(contents(table)[0], [11, 21])


def test_lookup_works_in_a_dataset(table):
    table.upsert([1, 2], [[1] * 4, [2] * 4])
    dataset = tf.data.Dataset.range(3).batch(3).map(table.lookup)
    (rows,) = list(dataset.as_numpy_iterator())
    np.testing.assert_array_equal(rows, table.lookup([0, 1, 2]).numpy())


@pytest.mark.parametrize("chunk_rows", [1, 3, 10, 100])
def test_export_gives_all_rows_by_ascending_key(table, chunk_rows):
    keys = np.array([5, -3, 8, 0, -7, 2, 9, 1, 4, 3])
    values = np.random.default_rng(2).normal(size=[10, 4]).astype(np.float32)
    table.upsert(keys, values)
    chunks = list(table.export(chunk_rows))
    assert [len(k) for k, _ in chunks] == [chunk_rows] * (10 // chunk_rows) + (
        [10 % chunk_rows] if 10 % chunk_rows else []
    )
    order = np.argsort(keys)
    np.testing.assert_array_equal(np.concatenate([k for k, _ in chunks]), keys[order])
    np.testing.assert_array_equal(np.concatenate([v for _, v in chunks]), values[order])


def test_export_is_a_snapshot(table):
    table.upsert(np.arange(10), np.ones([10, 4]))
    export = table.export(chunk_rows=4)
    table.upsert(np.arange(20), np.zeros([20, 4]))
    first = next(export)
    table.remove(np.arange(20))
    chunks = [first, *export]
    assert sum(len(keys) for keys, _ in chunks) == 10
    assert all((values == 1).all() for _, values in chunks)


def test_export_of_an_empty_table_is_empty(table):
    table.lookup([1, 2, 3])
    assert list(table.export()) == []


def test_tables_of_one_name_are_one(store, table):
    other = tf_hps.Table("user", 4, store=store)
    other.upsert([1], np.ones([1, 4]))
    assert table.size() == 1
    assert other.handle is table.handle  # what keeps their changes in order in a tf.function


def test_tables_of_different_dims_share_a_store(store, table):
    wide = tf_hps.Table("item", 9, store=store)
    table.upsert([1], np.ones([1, 4]))
    wide.upsert([1, 2], np.ones([2, 9]))
    assert (table.size(), wide.size()) == (1, 2)
    table.remove([1])
    assert (table.size(), wide.size()) == (0, 2)


def test_table_outlives_its_name(store):
    lookup = tf.function(tf_hps.Table("user", 4, store=store).lookup).get_concrete_function(
        tf.TensorSpec([None], tf.int64)
    )
    assert lookup(tf.constant([1, 2], tf.int64)).shape == (2, 4)


@pytest.mark.parametrize("dram_bytes", ["64MiB", "64KiB"])
@pytest.mark.parametrize("eviction", ["lfu", "lru"])
def test_random_operations_equal_a_dict(dram_bytes, eviction):
    seed = np.random.SeedSequence().entropy % 2**32
    print("seed", seed)
    rng = np.random.default_rng(seed)
    model = {}
    with tf_hps.Store(dram_bytes=dram_bytes, eviction=eviction) as store:
        table = tf_hps.Table("t", 8, store=store)
        for _ in range(60):
            keys = rng.integers(-3000, 3000, rng.integers(1, 600))
            _random_operation(rng, table, model, keys)
        keys, values, _ = contents(table)
        np.testing.assert_array_equal(keys, sorted(model))
        np.testing.assert_array_equal(values, [model[key] for key in sorted(model)])
        assert table.size() == len(model)
        if dram_bytes == "64KiB":
            tiers = store.stats()["tables"]["t"]
            assert tiers["dram"]["evictions"] > 0 and tiers["ssd"]["hits"] > 0, tiers


def _random_operation(rng, table, model, keys):
    operation = rng.choice(
        ["upsert", "remove", "train", "look", "commit"], p=[0.3, 0.1, 0.3, 0.2, 0.1]
    )
    if operation == "upsert":
        values = rng.normal(size=[len(keys), 8]).astype(np.float32)
        table.upsert(keys, values)
        model.update(zip(keys.tolist(), values, strict=True))
    elif operation == "remove":
        table.remove(keys)
        for key in keys.tolist():
            model.pop(key, None)
    elif operation == "commit":
        table.store.commit()
    else:
        rows = table.lookup(keys, training=operation == "train").numpy()
        for key, row in zip(keys.tolist(), rows, strict=True):
            if key in model:
                np.testing.assert_array_equal(row, model[key])
            elif operation == "train":
                model[key] = row
        np.testing.assert_array_equal(table.contains(keys), [k in model for k in keys.tolist()])


@pytest.mark.parametrize(
    ("spelling", "low", "high", "mean", "stddev"),
    [
        ("uniform", -0.05, 0.05, 0, 0.1 / 12**0.5),
        (tf_keras.initializers.RandomUniform(0, 2), 0, 2, 1, 2 / 12**0.5),
        ({"class_name": "RandomNormal", "config": {"stddev": 3.0}}, -30, 30, 0, 3),
        (tf_keras.initializers.TruncatedNormal(1, 0.5), 0, 2, 1, 0.5 * 0.8796),
        ("zeros", 0, 0, 0, 0),
        (tf_keras.initializers.Ones, 1, 1, 1, 0),
        (tf_keras.initializers.Constant(-2.5), -2.5, -2.5, -2.5, 0),
    ],
)
def test_initializers_draw_what_keras_does(store, spelling, low, high, mean, stddev):
    rows = tf_hps.Table("t", 10, store=store, initializer=spelling).lookup(np.arange(2000)).numpy()
    assert low <= rows.min() and rows.max() <= high
    assert abs(rows.mean() - mean) <= 4 * stddev / 20000**0.5
    assert abs(rows.std() - stddev) <= 0.02 * stddev


@pytest.mark.parametrize(
    "keras", ["glorot_uniform", "glorot_normal", "he_uniform", "HeNormal", "lecun_normal"]
)
def test_scaled_initializers_equal_keras_distribution(store, keras):
    spec = initializers.to_spec(keras, input_dim=500, output_dim=20)
    ours = tf_hps.Table("t", 20, store=store, initializer=spec).lookup(np.arange(500)).numpy()
    theirs = tf_keras.initializers.get(keras)([500, 20]).numpy()
    assert abs(ours.std() / theirs.std() - 1) < 0.04
    assert abs(ours.max() / theirs.max() - 1) < 0.25


def test_spec_of_a_spec_is_itself():
    for name in ("uniform", "normal", "truncated_normal", "ones"):
        spec = initializers.to_spec(name)
        assert initializers.to_spec(spec) == spec
