"""tf_hps.prefetch: the same results as without, rows that are there when they are needed."""

import time

import fresh
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import tf_hps

RNG = np.random.default_rng(5)
BATCHES, BATCH = 40, 64
USERS = RNG.integers(-(2**62), 2**62, 3000)[RNG.zipf(1.3, (BATCHES * BATCH, 1)) % 3000]
ITEMS = RNG.integers(0, 2000, (BATCHES * BATCH, 4))
LABELS = ((USERS[:, :1] + ITEMS.sum(axis=1, keepdims=True)) % 2).astype(np.float32)


def dataset_of(inputs=None):
    inputs = {"user": USERS, "items": ITEMS} if inputs is None else inputs
    return tf.data.Dataset.from_tensor_slices((inputs, LABELS)).batch(BATCH)


def functional_model(store, name="m"):
    tf_keras.utils.set_random_seed(1)
    user = tf_keras.Input([1], dtype="int64", name="user")
    items = tf_keras.Input([4], dtype="int64", name="items")
    rows = [
        tf_hps.HPSEmbedding(None, 8, store=store, name=f"{name}_user")(user),
        tf_hps.HPSEmbedding(1500, 8, store=store, name=f"{name}_item")(items % 1500),
    ]
    flat = tf_keras.layers.Flatten()(tf_keras.layers.Concatenate(axis=1)(rows))
    model = tf_keras.Model([user, items], tf_keras.layers.Dense(1, "sigmoid")(flat))
    model.compile(tf_hps.HPSOptimizer(tf_keras.optimizers.Adagrad(0.1)), "binary_crossentropy")
    return model


def contents(store):
    return {name: fresh.contents(table) for name, table in store.tables.items()}


def prefetched(store):
    return sum(table["dram"]["prefetched"] for table in store.stats()["tables"].values())


def misses(store):
    return sum(table["dram"]["misses"] for table in store.stats()["tables"].values())


def of_all_rows_on_ssd(path, dram_bytes, keys=USERS):
    """Opens a store with a trained table "t" of which nothing is in memory."""
    with tf_hps.Store(path, dram_bytes=dram_bytes) as store:
        tf_hps.Table("t", 8, store=store).upsert(keys, np.ones([*keys.shape, 8]))
    return tf_hps.Store(path, dram_bytes=dram_bytes)


@pytest.mark.parametrize("dram_bytes", ["30KB", "150KB", "16MiB"])
@pytest.mark.parametrize("eviction", ["lfu", "lru"])
def test_training_gives_the_same_bits_as_without(tmp_path, dram_bytes, eviction):
    results = []
    for depth in (0, 1, 3):
        path = tmp_path / f"depth-{depth}"
        with tf_hps.Store(path, dram_bytes=dram_bytes, eviction=eviction) as store:
            model = functional_model(store)
            data = dataset_of()
            data = tf_hps.prefetch(data, model, depth) if depth else data
            losses = model.fit(data, epochs=3, verbose=0).history["loss"]
            if depth and dram_bytes != "16MiB":
                assert prefetched(store) > 0
            results.append((losses, contents(store)))
    for losses, rows in results[1:]:
        assert losses == results[0][0]
        for name, expected in results[0][1].items():
            fresh.assert_same_contents(rows[name], expected)


def test_elements_come_out_as_they_went_in(tmp_path):
    with tf_hps.Store(dram_bytes="1MiB") as store:
        model = functional_model(store)
        data = dataset_of()
        ahead = tf_hps.prefetch(data, model)
        assert ahead.element_spec == data.element_spec
        assert ahead.cardinality() == data.cardinality() == BATCHES
        for element, expected in zip(ahead, data, strict=True):
            tf.nest.map_structure(np.testing.assert_array_equal, element, expected)
        assert all(table.size() == 0 for table in store.tables.values())  # looking is not touching


def test_training_finds_the_rows_in_memory(tmp_path):
    with of_all_rows_on_ssd(tmp_path / "s", "4MiB") as store:
        layer = tf_hps.HPSEmbedding(None, 8, store=store, name="t")
        for batch in tf_hps.prefetch(dataset_of(USERS), {None: layer}):
            layer(batch[0], training=True)
        distinct = len(np.unique(USERS))
        stats = store.stats()["tables"]["t"]
        assert stats["dram"]["misses"] == 0
        assert stats["dram"]["prefetched"] == distinct == stats["dram"]["rows"]
        assert store.stats()["store"]["seconds"]["prefetch"] > 0


def test_rows_stay_until_they_are_used(tmp_path):
    """Though what is hot fills the budget, and is used in between."""
    keys = np.arange(20_000)
    with of_all_rows_on_ssd(tmp_path / "s", "200KB", keys) as store:
        table = store.tables["t"]
        hot = np.arange(1500)
        for _ in range(20):
            table.lookup(hot, training=True)
        for begin in range(5000, 10_000, 100):
            coming = [np.arange(i, i + 100) for i in (begin, begin + 5000)]
            for batch in coming:
                list(tf_hps.prefetch(tf.data.Dataset.from_tensors(batch), {None: table}))
            table.lookup(hot, training=True)
            before = misses(store)
            for batch in coming:
                table.lookup(batch, training=True)
            assert misses(store) == before
        assert store.stats()["tables"]["t"]["dram"]["evictions"] > 1000


def test_rows_that_nobody_uses_do_not_stay_for_ever(tmp_path):
    keys = np.arange(20_000)
    with of_all_rows_on_ssd(tmp_path / "s", "200KB", keys) as store:
        table = store.tables["t"]
        list(tf_hps.prefetch(tf.data.Dataset.from_tensors(np.arange(1500)), {None: table}))
        for _ in range(30):
            for begin in range(5000, 6200, 100):
                table.lookup(np.arange(begin, begin + 100), training=True)
        before = misses(store)
        table.lookup(np.arange(5000, 6200), training=True)
        assert misses(store) - before < 200


def test_a_batch_larger_than_the_budget(tmp_path):
    keys = np.arange(20_000)
    with of_all_rows_on_ssd(tmp_path / "s", "20KB", keys) as store:
        table = store.tables["t"]
        list(tf_hps.prefetch(tf.data.Dataset.from_tensors(keys), {None: table}))
        assert store.stats()["store"]["dram_bytes"] <= 20_000
        assert (table.lookup(keys).numpy() == 1).all()


def models():
    def sequential(store):
        return tf_keras.Sequential([tf_hps.HPSEmbedding(None, 8, store=store, name="t")])

    def built(store):
        model = sequential(store)
        model(USERS[:2])
        return model

    def with_input(store):
        return tf_keras.Sequential([tf_keras.Input([1], dtype="int64"), *sequential(store).layers])

    def nested(store):
        x = tf_keras.Input([1], dtype="int64")
        return tf_keras.Model(x, with_input(store)(x * 1))

    def called_twice(store):
        x = tf_keras.Input([1], dtype="int64")
        layer = tf_hps.HPSEmbedding(None, 8, store=store, name="t")
        return tf_keras.Model(x, layer(x * 1) + layer(x))

    def shared(store):
        x = tf_keras.Input([1], dtype="int64")
        table = tf_hps.Table("t", 8, store=store)
        layers = [tf_hps.HPSEmbedding(None, 8, table=table) for _ in range(2)]
        return tf_keras.Model(x, layers[0](x) + layers[1](x))

    def mapping(store):
        return {None: sequential(store).layers}

    return [sequential, built, with_input, nested, called_twice, shared, mapping]


@pytest.mark.parametrize("make", models())
def test_layers_of_all_kinds_of_models_are_found(tmp_path, make):
    with of_all_rows_on_ssd(tmp_path / "s", "4MiB") as store:
        list(tf_hps.prefetch(dataset_of(USERS), make(store)))
        assert prefetched(store) == len(np.unique(USERS))


@pytest.mark.parametrize(
    "key, inputs",
    [
        ("ids", {"ids": USERS, "other": ITEMS}),
        (1, (ITEMS, USERS)),
        ("ids", {"ids": tf.RaggedTensor.from_uniform_row_length(USERS[:, 0], 2)}),
        ("ids", {"ids": tf.sparse.from_dense(USERS)}),
    ],
)
def test_keys_of_a_mapping(tmp_path, key, inputs):
    with of_all_rows_on_ssd(tmp_path / "s", "4MiB") as store:
        data = tf.data.Dataset.from_tensor_slices((inputs,)).batch(32)
        list(tf_hps.prefetch(data, {key: [store.tables["t"]]}))
        assert prefetched(store) == len(np.unique(USERS))


class Subclassed(tf_keras.Model):
    def __init__(self, store):
        super().__init__()
        self.user = tf_hps.HPSEmbedding(None, 8, store=store, name="user")

    def call(self, inputs):
        return self.user(inputs["user"])


def hiding_model(store):
    class Hiding(tf_keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.inner = tf_hps.HPSEmbedding(None, 8, store=store, name="hidden_one")

        def call(self, x):
            return self.inner(x)

    x = tf_keras.Input([1], dtype="int64")
    return tf_keras.Model(x, Hiding()(x))


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda store: "model", TypeError, "model: expected a model of tf_keras, or a dict"),
        (lambda store: {"user": 3}, TypeError, r"model\['user'\]: expected an HPSEmbedding"),
        (lambda store: tf_keras.Sequential(), ValueError, "no HPSEmbedding layer"),
        (Subclassed, ValueError, r"neither functional nor Sequential.*{'user_id': model.user"),
        (hiding_model, ValueError, "ids of hidden_one are made inside another layer"),
        (
            lambda store: tf_keras.Sequential(
                [tf_keras.layers.Flatten(), tf_hps.HPSEmbedding(None, 2, store=store)]
            ),
            ValueError,
            "not built yet: call it on a batch first",
        ),
        (
            lambda store: {"ad": tf_hps.Table("t", 2, store=store)},
            ValueError,
            r"no input 'ad'. They have: \['items', 'user'\]",
        ),
    ],
)
def test_what_cannot_be_prefetched_is_said(make, error, message):
    with tf_hps.Store() as store, pytest.raises(error, match=message):
        tf_hps.prefetch(dataset_of(), make(store))


def test_floats_are_no_ids():
    with tf_hps.Store() as store, pytest.raises(TypeError, match="^keys: expected int32 or int64"):
        table = tf_hps.Table("t", 2, store=store)
        tf_hps.prefetch(tf.data.Dataset.from_tensors(np.float32([1])), {None: table})


def test_bad_arguments():
    with pytest.raises(TypeError, match="dataset: expected a tf.data.Dataset. Received: list"):
        tf_hps.prefetch([1], {})
    for depth in (0, -1, 1.5, None):
        with pytest.raises(ValueError, match="depth: expected an int from 1"):
            tf_hps.prefetch(dataset_of(), {}, depth)


def test_a_closed_store_is_an_error_not_a_hang(tmp_path):
    store = tf_hps.Store(tmp_path / "s")
    table = tf_hps.Table("t", 8, store=store)
    ahead = iter(tf_hps.prefetch(dataset_of(USERS).repeat(), {None: table}, depth=1))
    next(ahead)
    store.close()
    with pytest.raises(tf.errors.FailedPreconditionError, match="is closed"):
        for _ in range(5):
            next(ahead)


def test_commits_and_exports_go_on_meanwhile(tmp_path):
    with of_all_rows_on_ssd(tmp_path / "s", "100KB") as store:
        table = store.tables["t"]
        ahead = iter(tf_hps.prefetch(dataset_of(USERS).repeat(), {None: table}, depth=4))
        expected = fresh.contents(table)
        end = time.monotonic() + 2
        while time.monotonic() < end:
            next(ahead)
            store.commit()
            fresh.assert_same_contents(fresh.contents(table), expected)
