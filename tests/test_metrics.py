"""TierMetrics: figures in the progress bar, the history and TensorBoard."""

import gc

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from test_prefetching import contents, dataset_of, functional_model

import tf_hps

FIGURES = {
    "dram_hit_rate",
    "ssd_rows",
    "new_rows",
    "prefetched_rows",
    "evicted_rows",
    "written_rows",
    "read_mib",
    "written_mib",
    "unwritten_mib",
    "dram_mib",
    *(f"seconds_{s}" for s in ("read", "fetch", "update", "evict", "commit", "prefetch")),
}


def fitted(store, *callbacks, ahead=False, **options):
    model = functional_model(store)
    data = tf_hps.prefetch(dataset_of(), model) if ahead else dataset_of()
    history = model.fit(data, verbose=0, callbacks=list(callbacks), **options).history
    return model, history


def test_the_history_has_the_figures_of_each_epoch():
    with tf_hps.Store(dram_bytes="60KB") as store:
        _, history = fitted(store, tf_hps.TierMetrics(), epochs=2)
        assert set(history) >= FIGURES and len(history["ssd_rows"]) == 2
        stats = store.stats()
        tables = stats["tables"].values()
        for name, tier, counter in (
            ("ssd_rows", "ssd", "hits"),
            ("new_rows", "ssd", "misses"),
            ("evicted_rows", "dram", "evictions"),
            ("written_rows", "ssd", "writes"),
        ):
            total = sum(table[tier][counter] for table in tables)
            assert total > 0 and sum(history[name]) * 40 == pytest.approx(total)
        hits, misses = (sum(t["dram"][n] for t in tables) for n in ("hits", "misses"))
        assert np.mean(history["dram_hit_rate"]) == pytest.approx(hits / (hits + misses), rel=0.01)
        seconds = stats["store"]["seconds"]["fetch"]
        assert 0 < sum(history["seconds_fetch"]) * 40 <= seconds * (1 + 1e-9)  # rounding
        assert history["dram_mib"][1] * 2**20 <= 60_000


def test_tables_that_go_while_it_watches_take_nothing_away():
    with tf_hps.Store(dram_bytes="1MiB") as store:
        others = [layer_of_rows(store, f"other_{i}", 500) for i in range(2)]

        def exchange(*_):  # one goes for ever, another one of the same name comes for one
            others.clear()
            gc.collect()
            others.append(layer_of_rows(store, "other_1", 3))

        callbacks = [tf_hps.TierMetrics(), tf_keras.callbacks.LambdaCallback(exchange)]
        _, history = fitted(store, *callbacks)
        tables = store.stats()["tables"]
        assert "other_0" not in tables and tables["other_1"]["ssd"]["misses"] == 3
        expected = sum(table["ssd"]["misses"] for table in tables.values())
        assert history["new_rows"][0] * 40 == pytest.approx(expected)
        assert 0 < history["dram_hit_rate"][0] < 1


def layer_of_rows(store, name, rows):
    layer = tf_hps.HPSEmbedding(None, 4, store=store, name=name)
    layer(np.arange(rows), training=True)
    return layer


def test_figures_are_of_a_batch_however_many_go_into_an_execution():
    figures = []
    for steps in (1, 7):
        with tf_hps.Store(dram_bytes="60KB") as store:
            model = functional_model(store)
            model.compile(model.optimizer, "binary_crossentropy", steps_per_execution=steps)
            callbacks = [tf_hps.TierMetrics()]
            history = model.fit(dataset_of(), verbose=0, callbacks=callbacks).history
            figures.append(history["new_rows"][0])
    assert figures[0] == figures[1] > 0


def test_prefetched_rows_are_no_rows_waited_for(tmp_path):
    with tf_hps.Store(tmp_path / "s", dram_bytes="1MiB") as store:
        fitted(store)
    with tf_hps.Store(tmp_path / "s", dram_bytes="1MiB") as store:
        _, history = fitted(store, tf_hps.TierMetrics(), ahead=True)
        assert history["prefetched_rows"][0] > 10 * history["ssd_rows"][0]


def test_results_are_the_same_with_it():
    results = []
    for callbacks in ([], [tf_hps.TierMetrics(seconds=0)]):
        with tf_hps.Store(dram_bytes="60KB") as store:
            _, history = fitted(store, *callbacks)
            results.append((history["loss"], contents(store)))
    assert results[0][0] == results[1][0]
    for name, rows in results[0][1].items():
        for column, other in zip(rows, results[1][1][name], strict=True):
            np.testing.assert_array_equal(column, other)


def test_the_progress_bar_shows_it(capsys):
    with tf_hps.Store(dram_bytes="60KB") as store:
        model = functional_model(store)
        model.fit(dataset_of(), verbose=1, callbacks=[tf_hps.TierMetrics(seconds=0)])
    output = capsys.readouterr().out
    assert "dram_hit_rate: 0." in output and "ssd_rows: " in output


def test_tensorboard_gets_it(tmp_path):
    with tf_hps.Store(dram_bytes="60KB") as store:
        callbacks = [
            tf_hps.TierMetrics(seconds=0),
            tf_keras.callbacks.TensorBoard(tmp_path, update_freq=1),
        ]
        fitted(store, *callbacks)
    tags = set()
    for file in tmp_path.rglob("events*"):
        for event in tf.compat.v1.train.summary_iterator(str(file)):
            tags |= {value.tag for value in event.summary.value}
    assert {"epoch_dram_hit_rate", "epoch_seconds_fetch", "batch_ssd_rows"} <= tags


def test_which_stores_it_watches():
    with tf_hps.Store() as store, tf_hps.Store() as other:
        model = tf_keras.Sequential([tf_keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        data = np.ones([8, 2]), np.ones([8, 1])
        with pytest.raises(ValueError, match="no HPSEmbedding layer.*TierMetrics\\(store\\)"):
            model.fit(*data, callbacks=[tf_hps.TierMetrics()], verbose=0)
        watched = [tf_hps.TierMetrics(store), tf_hps.TierMetrics([store, other])]
        history = model.fit(*data, callbacks=watched, verbose=0).history
        assert history["ssd_rows"] == [0.0]
        with pytest.raises(TypeError, match="store: expected a tf_hps.Store"):
            tf_hps.TierMetrics("store")
