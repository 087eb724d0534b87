"""Stores: durability, budgets, and what is on disk."""

import gc
import json
import os
import shutil
import signal
import struct
import time

import fresh
import numpy as np
import plyvel
import pytest

import tf_hps
from tf_hps._bytes import parse_bytes


def fill(table, rows, seed=0):
    """Writes rows of keys 0, 3, 6, ... and returns them as (keys, values)."""
    keys = np.arange(rows) * 3 - rows
    values = np.random.default_rng(seed).normal(size=[rows, table.dim]).astype(np.float32)
    table.upsert(keys, values)
    return keys, values


@pytest.mark.parametrize(
    ("text", "expected"),
    [(0, 0), (123, 123), (np.int64(5), 5), ("77", 77), ("8GiB", 8 << 30), ("1.5 gib", 3 << 29)]
    + [
        ("512MB", 512_000_000),
        (" .5KiB ", 512),
        ("2TB", 2 * 10**12),
        ("9007199254740993B", 2**53 + 1),
    ],
)
def test_budgets_are_understood(text, expected):
    assert parse_bytes(text, "dram_bytes") == expected


def test_commits_are_numbered_from_one(store):
    assert [store.commit() for _ in range(3)] == [1, 2, 3]


def test_reopened_store_has_the_committed_rows(tmp_path):
    with tf_hps.Store(tmp_path / "s") as store:
        table = tf_hps.Table("user", 5, store=store, initializer="normal", seed=3)
        keys, values = fill(table, 1000)
        initial = table.lookup([10**12]).numpy()
        before = fresh.contents(table)
    with tf_hps.Store(tmp_path / "s") as store:
        assert list(store.tables) == ["user"]
        table = tf_hps.Table("user", 5, store=store, initializer="normal", seed=3)
        fresh.assert_same_contents(fresh.contents(table), before)
        np.testing.assert_array_equal(table.lookup(keys).numpy(), values)
        np.testing.assert_array_equal(table.lookup([10**12]).numpy(), initial)
        assert store.stats()["tables"]["user"]["ssd"]["hits"] > 0


def test_tables_are_found_in_a_fresh_process(tmp_path):
    with tf_hps.Store(tmp_path / "s") as store:
        fill(tf_hps.Table("user", 5, store=store, initializer="ones", seed=-9), 10)
        tf_hps.Table("item/small", 2, store=store)
    found = fresh.run(
        """
        with tf_hps.Store(sys.argv[1]) as store:
            print([(name, t.name, t.dim, t.size()) for name, t in store.tables.items()])
            print(store.tables["user"].lookup([10**9]).numpy().tolist())
        """,
        tmp_path / "s",
    )
    assert found.splitlines() == [
        "[('item/small', 'item/small', 2, 0), ('user', 'user', 5, 10)]",
        "[[1.0, 1.0, 1.0, 1.0, 1.0]]",
    ]


def test_close_without_commit_leaves_the_last_commit(tmp_path):
    store = tf_hps.Store(tmp_path / "s")
    table = tf_hps.Table("user", 3, store=store)
    fill(table, 100)
    store.commit()
    before = fresh.contents(table)
    table.remove(before[0][:50])
    fill(table, 200, seed=1)
    store.close(commit=False)
    with tf_hps.Store(tmp_path / "s") as store:
        fresh.assert_same_contents(fresh.contents(store.tables["user"]), before)


def test_with_commits_unless_it_fails(tmp_path):
    with tf_hps.Store(tmp_path / "s") as store:
        fill(tf_hps.Table("user", 3, store=store), 10)
    with pytest.raises(ZeroDivisionError), tf_hps.Store(tmp_path / "s") as store:
        store.tables["user"].remove(np.arange(-100, 100))
        assert store.tables["user"].size() == 0
        raise ZeroDivisionError
    with tf_hps.Store(tmp_path / "s") as store:
        assert store.tables["user"].size() == 10


def test_killed_process_leaves_the_last_commit(tmp_path):
    process = fresh.start(
        """
        import fresh
        store = tf_hps.Store(sys.argv[1], dram_bytes="128KiB")
        table = tf_hps.Table("user", 8, store=store)
        rng = np.random.default_rng(0)
        for step in range(3):
            table.upsert(rng.integers(0, 5000, 2000), rng.normal(size=[2000, 8]))
        table.remove(np.arange(100))
        store.commit()
        fresh.save_contents(sys.argv[2], table)
        print("committed", flush=True)
        while True:  # evictions write to SSD all the while
            table.upsert(rng.integers(0, 9000, 2000), rng.normal(size=[2000, 8]))
            print(store.stats()["store"]["bytes_written"], flush=True)
        """,
        tmp_path / "s",
        tmp_path / "committed.npz",
    )
    assert process.stdout.readline().strip() == "committed"
    first = int(process.stdout.readline())
    while int(process.stdout.readline()) == first:
        pass  # it is to be killed with later rows on SSD
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with tf_hps.Store(tmp_path / "s") as store:
        received = fresh.contents(store.tables["user"])
    fresh.assert_same_contents(received, fresh.load_contents(tmp_path / "committed.npz"))


def test_process_that_ends_without_close_leaves_the_last_commit(tmp_path):
    fresh.run(
        """
        store = tf_hps.Store(sys.argv[1])
        table = tf_hps.Table("user", 2, store=store)
        table.upsert([1, 2], np.ones([2, 2]))
        store.commit()
        table.upsert([3], np.ones([1, 2]))
        """,
        tmp_path / "s",
    )
    with tf_hps.Store(tmp_path / "s") as store:
        np.testing.assert_array_equal(fresh.contents(store.tables["user"])[0], [1, 2])


def test_temporary_store_is_removed_when_closed_or_forgotten():
    store = tf_hps.Store()
    fill(tf_hps.Table("t", 2, store=store), 10)
    path = store.path
    assert store.temporary and os.listdir(path)
    store.close()
    assert not os.path.exists(path)

    store = tf_hps.Store()
    table, path = tf_hps.Table("t", 2, store=store), store.path
    del store
    gc.collect()
    assert table.size() == 0 and os.path.exists(path)  # its table keeps it
    del table
    gc.collect()
    assert not os.path.exists(path)


def test_temporary_stores_are_removed_when_the_process_ends():
    output = fresh.run(
        """
        table, store = tf_hps.Table("t", 2), tf_hps.Store()
        table.upsert([1], np.ones([1, 2]))
        print(table.store.path, store.path, [os.path.isdir(s.path) for s in (table.store, store)])
        """
    )
    first, second, *exist = output.split()
    assert exist == ["[True,", "True]"]
    assert not os.path.exists(first) and not os.path.exists(second)


def test_forgotten_store_with_a_path_warns_and_frees_it(tmp_path):
    store = tf_hps.Store(tmp_path / "s")
    fill(tf_hps.Table("t", 2, store=store), 10)
    with pytest.warns(RuntimeWarning, match="not closed.*commit"):
        del store
        gc.collect()
    with tf_hps.Store(tmp_path / "s") as store:
        assert store.tables == {}


def test_one_default_store_unless_another_is_set(store):
    default = tf_hps.default_store()
    assert default is tf_hps.default_store() and default.temporary
    tf_hps.set_default_store(store)
    try:
        assert tf_hps.Table("t", 2).store is store
    finally:
        tf_hps.set_default_store(None)
    assert tf_hps.default_store() is not store
    tf_hps.default_store().close()
    assert not tf_hps.default_store().closed


def test_closing_twice_is_closing_once(tmp_path):
    store = tf_hps.Store(tmp_path / "s")
    store.close()
    store.close()
    assert store.closed and "closed" in repr(store)


@pytest.mark.parametrize("eviction", ["lfu", "lru"])
@pytest.mark.parametrize("dram_bytes", [1, "100KiB"])
def test_rows_beyond_the_budget_go_to_ssd_and_come_back(eviction, dram_bytes):
    with tf_hps.Store(dram_bytes=dram_bytes, eviction=eviction) as store:
        table = tf_hps.Table("user", 16, store=store)
        keys, values = fill(table, 20_000)
        np.testing.assert_array_equal(table.lookup(keys).numpy(), values)
        stats = store.stats()
        tiers = stats["tables"]["user"]
        assert tiers["dram"]["evictions"] > 0 and tiers["ssd"]["hits"] > 10_000
        assert stats["store"]["bytes_written"] > values.nbytes / 2
        if dram_bytes != 1:
            assert tiers["dram"]["bytes"] <= parse_bytes(dram_bytes, "")


def test_stats_are_nested_by_table_and_tier(store):
    fill(tf_hps.Table("user", 2, store=store), 10)
    tf_hps.Table("a/b", 2, store=store)
    stats = store.stats()
    json.dumps(stats)
    assert set(stats["tables"]) == {"user", "a/b"}
    for tier in ("dram", "ssd"):
        counters = stats["tables"]["user"][tier]
        assert {"hits", "misses", "inserts", "evictions", "rows", "bytes"} <= counters.keys()
        assert all(isinstance(value, int) for value in counters.values())
    assert {"bytes_read", "bytes_written", "seconds"} <= stats["store"].keys()
    assert all(isinstance(value, float) for value in stats["store"]["seconds"].values())


def _stored_rows(path):
    """Yields (table id, key, value) of all entries of the last commit, as plyvel reads them."""
    with open(path / "CURRENT") as file:
        commit = path / "commits" / f"{int(file.read().split()[0]):06d}"
    shutil.copytree(commit, path / "copy")  # LevelDB writes where it reads
    for folder, _, files in os.walk(path / "copy"):
        if "CURRENT" in files:
            with plyvel.DB(folder, create_if_missing=False) as database:
                for entry, value in database:
                    table_id, flipped = struct.unpack(">IQ", entry)
                    yield (
                        table_id,
                        int(np.array(flipped ^ (1 << 63), np.uint64).view(np.int64)),
                        value,
                    )


def test_an_independent_client_reads_the_store_row_by_row(tmp_path):
    with tf_hps.Store(tmp_path / "s", dram_bytes="64KiB") as store:
        table = tf_hps.Table("user", 3, store=store)
        keys, values = fill(table, 5000)
        extremes = [np.iinfo(np.int64).min, np.iinfo(np.int64).max]
        table.upsert(extremes, np.ones([2, 3]))
        tf_hps.Table("item", 1, store=store).upsert([1], [[0.25]])
    expected = dict(zip(keys.tolist(), values.tolist(), strict=True))
    expected |= {key: [1, 1, 1] for key in extremes}
    user, item = {}, {}
    for _, key, value in _stored_rows(tmp_path / "s"):
        assert (len(value) - 16) % 4 == 0
        weights = np.frombuffer(value, "<f4", offset=16).tolist()
        (user if len(weights) == 3 else item)[key] = weights
    assert user == expected and item == {1: [0.25]}


def test_fork_does_not_close_its_parent_s_store():
    output = fresh.run(
        """
        import gc
        store = tf_hps.Store()
        table, path = tf_hps.Table("t", 2, store=store), store.path
        table.upsert([1], np.ones([1, 2]))
        child = os.fork()
        if child == 0:
            del table, store
            gc.collect()
            os._exit(0)
        os.waitpid(child, 0)
        print(table.size(), os.path.exists(path))
        """
    )
    assert output.split() == ["1", "True"]


@pytest.mark.parametrize("end", ["close", "with", "commit", "train", "exit"])
def test_a_fork_can_neither_use_nor_hang_on_its_parent_s_store(tmp_path, end):
    output = fresh.run(
        """
        import signal
        folder, end = sys.argv[1:]
        store = tf_hps.Store(folder)
        table = tf_hps.Table("t", 2, store=store)
        table.upsert([1], np.ones([1, 2]))
        child = os.fork()
        if child == 0:
            signal.alarm(60)  # ends it where it hangs
            try:
                if end == "close":
                    store.close()
                elif end == "with":
                    with store:
                        pass
                elif end == "commit":
                    store.commit()
                elif end == "train":
                    table.upsert([2], np.ones([1, 2]))
            except tf.errors.FailedPreconditionError as error:
                assert "fork" in str(error), error
                os._exit(7)
            if end == "exit":
                sys.exit(0)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        table.upsert([3], np.ones([1, 2]))
        store.close()
        with tf_hps.Store(folder) as store:
            print(store.tables["t"].contains([1, 2, 3]).tolist())
        """,
        tmp_path / "s",
        end,
    )
    assert output.splitlines() == [
        "7" if end in ("commit", "train") else "0",
        "[True, False, True]",
    ]


def test_a_fork_does_not_keep_its_parent_s_store_locked(tmp_path):
    fresh.run(
        """
        import time
        store = tf_hps.Store(sys.argv[1])
        child = os.fork()
        if child == 0:
            time.sleep(600)
        try:
            store.close()
            tf_hps.Store(sys.argv[1]).close()
        finally:
            os.kill(child, 9)
        """,
        tmp_path / "s",
    )


def test_a_batch_of_many_budgets_takes_time_in_proportion(tmp_path):
    def seconds(rows):
        with tf_hps.Store(dram_bytes="64KiB") as store:
            table = tf_hps.Table("t", 1, store=store)
            start = time.perf_counter()
            table.upsert(np.arange(rows), np.ones([rows, 1]))
            return time.perf_counter() - start

    seconds(1000)
    few = min(seconds(20_000) for _ in range(3))
    assert seconds(200_000) < 40 * few  # 100 times it would be in proportion to the square


@pytest.mark.parametrize(
    "name", ["user id", "größe", 'a"b', "x=y", "new\nline", "tables/x/dram", "..", "a" * 300, "%s"]
)
def test_any_string_is_a_table_s_name(tmp_path, name):
    with tf_hps.Store(tmp_path / "ä b") as store:
        keys, _ = fill(tf_hps.Table(name, 2, store=store), 10)
        assert store.stats()["tables"][name]["dram"]["rows"] == 10
    with tf_hps.Store(tmp_path / "ä b") as store:
        assert store.tables[name].contains(keys).all()


@pytest.mark.parametrize("then", ["retry", "die"])
def test_commit_that_fails_leaves_the_former_one_and_a_usable_store(tmp_path, then):
    """Writing fails as on a full disk: by a limit on the size of files."""
    fresh.run(
        """
        import fresh, resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        store = tf_hps.Store(sys.argv[1])
        table = tf_hps.Table("t", 8, store=store)
        table.upsert(np.arange(5000), np.ones([5000, 8]))
        store.commit()
        fresh.save_contents(sys.argv[2], table)
        table.upsert(np.arange(2500), np.zeros([2500, 8]))
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
        for fail in (store.commit, store.close, store.commit):
            try:
                fail()
                sys.exit("no error")
            except tf.errors.OpError as error:
                assert sys.argv[1] in str(error), error
        assert not store.closed
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        if sys.argv[3] == "retry":
            fresh.save_contents(sys.argv[2], table)
            store.commit()
        os._exit(0)
        """,
        tmp_path / "s",
        tmp_path / "expected.npz",
        then,
    )
    with tf_hps.Store(tmp_path / "s") as store:
        received = fresh.contents(store.tables["t"])
    fresh.assert_same_contents(received, fresh.load_contents(tmp_path / "expected.npz"))
    assert received[1].sum() == 8 * (2500 if then == "retry" else 5000)
