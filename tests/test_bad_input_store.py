"""Stores and tables: each bad input is one clear error, and changes nothing."""

import os

import fresh
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import tf_hps
from tf_hps import initializers


@pytest.fixture
def table(store):
    """A table with two rows; that it still has just these is checked after each test."""
    table = tf_hps.Table("user", 3, store=store)
    table.upsert([1, 2], [[1, 2, 3], [4, 5, 6]])
    before = fresh.contents(table)
    yield table
    fresh.assert_same_contents(fresh.contents(table), before)


@pytest.mark.parametrize(
    "budget", ["many", "12 parsecs", "GiB", "", -1, 1.5, None, True, "1e9", 2**63]
)
@pytest.mark.parametrize("argument", ["dram_bytes", "hbm_bytes"])
def test_budget_that_is_none(budget, argument):
    with pytest.raises(ValueError, match=argument + r": expected .*8GiB.*Received: ") as error:
        tf_hps.Store(**{argument: budget})
    assert repr(budget) in str(error.value)


def test_hbm_budget_without_a_gpu_tier():
    with pytest.raises(tf.errors.InvalidArgumentError, match="hbm_bytes"):
        tf_hps.Store(hbm_bytes="1GiB")


def test_eviction_that_is_none():
    with pytest.raises(ValueError, match="lfu.*lru.*Received: 'fifo'"):
        tf_hps.Store(eviction="fifo")


@pytest.mark.parametrize("path", ["gs://bucket/store", "", b"bytes"])
def test_path_that_is_no_local_directory(path):
    with pytest.raises(ValueError, match="local disk.*Received"):
        tf_hps.Store(path)


def test_path_that_cannot_be_written(tmp_path):
    with pytest.raises(tf.errors.OpError, match="/proc/nothing") as error:
        tf_hps.Store("/proc/nothing/store")
    assert "function_node" not in str(error.value)
    (tmp_path / "file").write_text("I am a file")
    for path in ("file", "file/store", "file/a/store"):
        with pytest.raises(
            tf.errors.FailedPreconditionError,
            match=f"{tmp_path}/{path}: {tmp_path}/file is there already and is no directory. Give",
        ):
            tf_hps.Store(tmp_path / path)
    assert (tmp_path / "file").read_text() == "I am a file"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_path_without_permission(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(tf.errors.PermissionDeniedError, match=str(tmp_path)):
        tf_hps.Store(tmp_path / "s")


def test_store_open_in_this_process(tmp_path):
    with tf_hps.Store(tmp_path / "s") as store:
        tf_hps.Table("t", 2, store=store).upsert([1], np.ones([1, 2]))
        (tmp_path / "link").symlink_to(tmp_path / "s")
        for path in ("s", "link", "./s/"):
            with pytest.raises(tf.errors.FailedPreconditionError, match="open") as error:
                tf_hps.Store(tmp_path / path)
            assert str(tmp_path / "s") in str(error.value)
        assert store.tables["t"].size() == 1 and store.commit() == 1


def test_store_open_in_another_process(tmp_path):
    with tf_hps.Store(tmp_path / "s") as store:
        tf_hps.Table("t", 2, store=store).upsert([1], np.ones([1, 2]))
        store.commit()
        output = fresh.run(
            """
            try:
                tf_hps.Store(sys.argv[1])
            except tf.errors.FailedPreconditionError as error:
                print(error.message)
            """,
            tmp_path / "s",
        )
        assert "open" in output and str(tmp_path / "s") in output
        assert store.tables["t"].size() == 1
    with tf_hps.Store(tmp_path / "s") as store:
        assert store.tables["t"].size() == 1


def test_directory_of_something_else(tmp_path):
    (tmp_path / "diary.txt").write_text("dear diary")
    with pytest.raises(tf.errors.FailedPreconditionError, match=str(tmp_path)):
        tf_hps.Store(tmp_path)
    assert os.listdir(tmp_path) == ["diary.txt"]


def _damage(path, change):
    """Applies `change` to the bytes of each file of the last commit that has rows."""
    damaged = 0
    for folder, _, files in os.walk(path / "commits"):
        for name in files:
            if name.endswith((".ldb", ".sst")):
                file = os.path.join(folder, name)
                with open(file, "rb") as old:
                    data = old.read()
                with open(file, "wb") as new:
                    new.write(change(data))
                damaged += 1
    assert damaged > 0


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[: len(data) // 2],
        lambda data: bytes(len(data)),
        lambda data: data[:100] + b"!" * 50 + data[150:],
    ],
    ids=["truncated", "zeroed", "flipped"],
)
def test_damaged_rows(tmp_path, change):
    keys = np.arange(20_000)
    with tf_hps.Store(tmp_path / "s") as store:
        tf_hps.Table("t", 4, store=store).upsert(keys, np.ones([len(keys), 4]))
    _damage(tmp_path / "s", change)
    with pytest.raises(tf.errors.OpError, match=str(tmp_path / "s")) as error:
        with tf_hps.Store(tmp_path / "s") as store:
            store.tables["t"].lookup(keys)  # never zeros, initial rows or stale ones
    assert isinstance(error.value, tf.errors.DataLossError)


@pytest.mark.parametrize("name", ["FORMAT", "CURRENT"])
def test_damaged_store_files(tmp_path, name):
    with tf_hps.Store(tmp_path / "s") as store:
        tf_hps.Table("t", 4, store=store).upsert([1], np.ones([1, 4]))
    (tmp_path / "s" / name).write_text("nonsense")
    with pytest.raises(tf.errors.OpError, match=str(tmp_path / "s")):
        tf_hps.Store(tmp_path / "s")
    assert (tmp_path / "s" / name).read_text() == "nonsense"


def test_use_of_a_closed_store(tmp_path):
    store = tf_hps.Store()
    table = tf_hps.Table("t", 2, store=store)
    store.close()
    for use in (
        store.commit,
        store.stats,
        lambda: store.tables,
        lambda: tf_hps.Table("u", 2, store),
    ):
        with pytest.raises(ValueError, match="closed"):
            use()
    with tf_hps.Store(tmp_path / "store") as store:
        pass
    with pytest.raises(ValueError, match=rf"closed; open it again: tf_hps.Store\('{store.path}'\)"):
        store.stats()
    for use in (table.size, table.export, lambda: table.lookup([1]), lambda: table.contains([1])):
        with pytest.raises(tf.errors.FailedPreconditionError, match="closed"):
            use()


def test_what_is_no_store():
    with pytest.raises(TypeError, match="Received: '/data'"):
        tf_hps.Table("t", 2, store="/data")
    with pytest.raises(TypeError, match="Received: '/data'"):
        tf_hps.set_default_store("/data")


@pytest.mark.parametrize(
    "other",
    [{"dim": 4}, {"initializer": "normal"}, {"seed": 1}],
    ids=["dim", "initializer", "seed"],
)
def test_one_name_two_layouts(tmp_path, other):
    layout = {"dim": 3, "initializer": "uniform", "seed": 0}
    with tf_hps.Store(tmp_path / "s") as store:
        tf_hps.Table("user", store=store, **layout).upsert([1], np.ones([1, 3]))
        _check_other_layout(store, layout | other)
    with tf_hps.Store(tmp_path / "s") as store:  # where no object of this process has it
        _check_other_layout(store, layout | other)
        assert tf_hps.Table("user", store=store, **layout).size() == 1


def _check_other_layout(store, layout):
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        tf_hps.Table("user", store=store, **layout)
    message = str(error.value)
    for part in ("user", store.path, "dim", "3", str(layout["dim"]), str(layout["seed"])):
        assert part in message


@pytest.mark.parametrize("dim", [0, -1, 2.0, "8", None, True])
def test_dim_that_is_none(store, dim):
    with pytest.raises(ValueError, match="dim: expected an int from 1 to 2.."):
        tf_hps.Table("t", dim, store=store)
    assert store.tables == {}


@pytest.mark.parametrize("name", ["", 7, None])
def test_name_that_is_none(store, name):
    with pytest.raises(ValueError, match="name: expected a string.*Received"):
        tf_hps.Table(name, 2, store=store)


@pytest.mark.parametrize("seed", [1.5, 2**63, "a", None])
def test_seed_that_is_none(store, seed):
    with pytest.raises(ValueError, match="seed: expected an int.*Received"):
        tf_hps.Table("t", 2, store=store, seed=seed)


@pytest.mark.parametrize(
    ("initializer", "message"),
    [
        ("orthogonal", "Unsupported.*orthogonal.*Use one of"),
        (tf_keras.initializers.Identity(), "Unsupported.*Use one of"),
        (len, "Unsupported.*Use one of"),
        (7, "Unsupported.*Use one of"),
        ("glorot_uniform", "number of keys.*input_dim"),
        ("uniform(low=1)", "Unknown arguments.*low"),
        (tf_keras.initializers.RandomUniform(2, 1), "minval <= maxval"),
        (tf_keras.initializers.RandomNormal(stddev=-1), "stddev >= 0"),
        (tf_keras.initializers.Constant(float("nan")), "finite"),
        (tf_keras.initializers.Constant([1, 2]), "one number"),
    ],
)
def test_initializer_that_the_engine_lacks(store, initializer, message):
    with pytest.raises(ValueError, match=message):
        tf_hps.Table("t", 2, store=store, initializer=initializer)
    assert store.tables == {}


def test_initializer_is_named_as_received():
    with pytest.raises(ValueError, match="my_own"):
        initializers.to_spec({"class_name": "my_own", "config": {}})


BAD_KEYS = [
    [1.0, 2.0],
    np.zeros(2, np.float32),
    np.zeros(2, np.float64),
    np.zeros(0, np.float32),
    np.zeros(2, np.int16),
    np.zeros(2, np.uint64),
    np.zeros(2, bool),
    np.array(["a", "b"]),
    ["a"],
    [None],
    [[1], [2, 3]],
    [2**63],
    [-(2**63) - 1],
    tf.constant([1.0]),
    tf.constant([1], tf.uint8),
    tf.ragged.constant([[1], [2, 3]]),
    tf.sparse.from_dense([1, 0, 2]),
]


@pytest.mark.parametrize("keys", BAD_KEYS, ids=lambda keys: f"{type(keys).__name__} {keys!r:.20}")
@pytest.mark.parametrize("method", ["lookup", "train", "upsert", "remove", "contains"])
def test_keys_that_are_none(table, keys, method):
    call = {
        "train": lambda keys: table.lookup(keys, training=True),
        "upsert": lambda keys: table.upsert(keys, np.ones([2, 3])),
    }.get(method) or getattr(table, method)
    with pytest.raises(TypeError, match="keys: expected .*Received: "):
        call(keys)


def test_keys_that_are_none_in_a_function(table):
    with pytest.raises(TypeError, match="keys: expected int32 or int64. Received: float32"):
        tf.function(table.lookup)(tf.constant([1.0]))


@pytest.mark.parametrize("shape", [(2, 4), (2, 2), (3, 3), (3,), (6,), (2, 1, 3), ()])
def test_values_of_another_shape(table, shape):
    with pytest.raises(ValueError, match=r"values: expected shape \(2, 3\).*Received: "):
        table.upsert([1, 9], np.ones(shape))


def test_values_of_a_shape_only_known_when_run(table):
    @tf.function(input_signature=[tf.TensorSpec(None, tf.int64), tf.TensorSpec(None, tf.float32)])
    def upsert(keys, values):
        table.upsert(keys, values)

    with pytest.raises(tf.errors.InvalidArgumentError):
        upsert([1, 9], tf.ones([3, 3]))


@pytest.mark.parametrize(
    "values", [["a"] * 3, np.zeros([1, 3], complex), tf.zeros([1, 3], tf.float64)]
)
def test_values_of_another_dtype(table, values):
    with pytest.raises(TypeError, match="values: expected float32. Received"):
        table.upsert([9], values)


@pytest.mark.parametrize("chunk_rows", [0, -5, 2.5, None])
def test_chunk_rows_that_are_none(table, chunk_rows):
    with pytest.raises(ValueError, match="chunk_rows: expected an int from 1 to 2.."):
        table.export(chunk_rows)


def test_graph_mode(store):
    with tf.Graph().as_default(), pytest.raises(RuntimeError, match="eager execution"):
        tf_hps.Table("t", 2, store=store)


@pytest.mark.parametrize("path", ["64MiB", " 1.5 gb", 64 * 2**20, np.int64(7)])
def test_a_budget_in_the_place_of_the_path(path):
    with pytest.raises(ValueError, match="path: expected a directory.*Store\\(dram_bytes="):
        tf_hps.Store(path)


def test_a_path_in_the_place_of_a_store():
    dense = tf_keras.Sequential([tf_keras.layers.Embedding(10, 4), tf_keras.layers.Dense(1)])
    for use in (
        lambda: tf_hps.HPSEmbedding(10, 4, store="rows"),
        lambda: tf_hps.make_tiered(dense, "rows"),
        lambda: tf_hps.Table("t", 4, store="rows"),
        lambda: tf_hps.set_default_store("rows"),
    ):
        with pytest.raises(TypeError, match="store: expected a tf_hps.Store.*Received: 'rows'"):
            use()


def test_layers_without_a_name_in_a_store_with_a_path(tmp_path):
    """Keras would name them by their number in this process: other rows at the next start."""
    with tf_hps.Store(tmp_path / "store") as store:
        layer = tf_hps.HPSEmbedding(10, 4, store=store)
        with pytest.raises(ValueError, match="no name.*name='user'"):
            layer(tf.constant([1]))
        assert not store.tables
        tf_hps.set_default_store(store)
        try:
            with pytest.raises(ValueError, match="no name"):
                tf_keras.Sequential([tf_hps.HPSEmbedding(10, 4)])
            tf_hps.HPSEmbedding(10, 4, name="user")(tf.constant([1]))
        finally:
            tf_hps.set_default_store(None)
        assert list(store.tables) == ["user"]


def test_make_tiered_replaces_rows_only_if_told_to(tmp_path):
    def model():
        layer = tf_keras.layers.Embedding(10, 4, name="user", input_length=1)
        return tf_keras.Sequential([layer, tf_keras.layers.Dense(1)])

    with tf_hps.Store(tmp_path / "store") as store:
        first = tf_hps.make_tiered(model(), store)
        rows = first.layers[0].table.lookup(range(10)).numpy()
        with pytest.raises(ValueError, match="'user'.*10 rows.*overwrite=True"):
            tf_hps.make_tiered(model(), store)
        np.testing.assert_array_equal(store.tables["user"].lookup(range(10)), rows)
        tf_hps.make_tiered(model(), store, min_rows=11)
        second = tf_hps.make_tiered(model(), store, overwrite=True)
        assert np.any(second.layers[0].table.lookup(range(10)) != rows)
