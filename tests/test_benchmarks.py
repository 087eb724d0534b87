"""The benchmark suite: its parts, and cases of tiny sizes."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from benchmarks import cases, out_of_memory, report, workload
from benchmarks.__main__ import Settings
from benchmarks.measure import Goal, Result, Samples, Workers
from benchmarks.worker import Worker, WorkerError

ROOT = pathlib.Path(__file__).resolve().parent.parent


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """Sizes that take no time, in processes that find this checkout."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(out_of_memory, "STORES", tmp_path)
    sizes = {"batch": 32, "batches": 4, "long_batches": 8, "rounds": 5, "shares": (1 / 2,)}
    times = {"seconds": 0.001, "fit_seconds": 0.001, "settling": 2, "window": 4}
    with open(tmp_path / "log.txt", "w") as log:
        workers = Workers(log, keep=True)
        yield Settings(**sizes, **times, workers=workers)
        workers.close()


def test_keys_of_different_rows_differ_and_are_scattered():
    keys = workload.key_of(np.arange(100_000))
    assert len(np.unique(keys)) == 100_000
    assert (keys < 0).mean() == pytest.approx(0.5, abs=0.01)


def test_every_rank_has_an_index_of_its_own():
    assert len(np.unique(workload.index_of(np.arange(5000), 5000))) == 5000


def test_batches_are_the_same_each_time_and_have_as_many_distinct_ids_as_expected():
    popularity = workload.Popularity(10_000)
    batches = popularity.batches(3, 200)
    np.testing.assert_array_equal(batches, workload.Popularity(10_000).batches(3, 200))
    distinct = np.mean([len(np.unique(batch)) for batch in batches])
    assert popularity.misses(0, 200 * 26) == pytest.approx(distinct, rel=0.03)
    resident = popularity.resident_for(popularity.misses(500, 5200), 5200)
    assert resident == pytest.approx(500, abs=1)


def test_columns_do_not_share_ids():
    batches = workload.column_batches(26_000, 2, 100)
    np.testing.assert_array_equal(batches // 1000, np.tile(np.arange(26), [2, 100, 1]))


def test_rows_do_not_depend_on_the_chunk():
    rows = workload.rows_of(np.arange(1000), 16)
    np.testing.assert_array_equal(workload.rows_of([7, 999], 16), rows[[7, 999]])
    assert rows.min() >= -0.05 and rows.max() < 0.05 and rows.std() > 0.02


def test_the_oracle_sums_duplicates():
    batch = np.array([[3, 3]])
    gradient = np.ones([1, 2, 2], np.float32)
    index, rows = workload.adagrad_oracle([batch], gradient, 2, row_wise=False)
    expected = workload.rows_of(index, 2) - workload.LEARNING_RATE
    np.testing.assert_allclose(rows, expected, rtol=1e-5)


def test_ratios_are_those_within_a_round():
    samples = Samples({"a": [1.0, 4.0, 9.0], "b": [2.0, 8.0, 3.0]}, {})
    assert samples.ratio("b", "a") == 2.0


@pytest.mark.parametrize("value,most,met", [(2, False, False), (3, False, True), (4, True, False)])
def test_goals(value, most, met):
    goal = Goal("times", value, 3, most)
    assert goal.met == met
    assert str(goal).endswith("PASS" if met else "short")


def test_a_worker_reports_errors_and_goes_on(settings):
    with settings.workers({"tiered": "tiered"}) as workers:
        worker = workers["tiered"]
        with pytest.raises(WorkerError, match="no_such_operation"):
            worker.call("measure", operation="no_such_operation", count=1)
        assert worker.call("describe")["tf_hps"]


def test_a_worker_that_dies_is_an_error(settings, tmp_path):
    with open(tmp_path / "other.txt", "w") as log:
        worker = Worker("no_such_system", sys.executable, log)
        with pytest.raises(WorkerError, match="died"):
            worker.call("describe")
        worker.close()


def test_cases_check_what_they_time(settings, monkeypatch, tmp_path):
    needs_gather = not (ROOT / "build" / "release" / "libtf_hps_gather_limit.so").exists()
    results = [
        *([] if needs_gather else cases.in_memory(settings, 2000, 8)),
        *cases.fit(settings, 2000, 16, "adagrad"),
        *cases.fit(settings, 2000, 16, "adam"),
        *cases.columns(settings, 2600, 16),
        *out_of_memory.budgets(settings, 4000, 16),
        *out_of_memory.growth(settings, (2000, 4000), 16),
    ]
    assert all(ms > 0 for result in results for ms in result.milliseconds.values())
    assert not list(tmp_path.glob("scratch-*"))
    content = {
        "hardware": {"cpu": "a CPU", "cores": 2, "memory_gib": 1.0, "kernel": "6"},
        "versions": {"tiered": {"tf_hps": "1", "tensorflow": "2", "threads": 2}},
        "copy_bytes_per_second": 1e9,
        "batch": settings.batch,
        "results": [result.to_json() for result in results],
    }
    report.write(json.loads(json.dumps(content)), tmp_path / "report")
    written = (tmp_path / "report" / "README.md").read_text()
    assert "fit, adam" in written
    assert (tmp_path / "report" / "budgets.png").exists()


def test_a_wrong_row_is_noticed(settings):
    with settings.workers({"tiered": "tiered"}) as workers:
        settings.setup(workers["tiered"], 1000, 8)
        workers["tiered"].call("check_update")
        with pytest.raises(WorkerError, match="Mismatch"):
            workers["tiered"].call("check_update")  # from rows that have moved


def test_engine_bench_names_its_flags():
    program = ROOT / "build" / "release" / "tf_hps_engine_bench"
    if not program.exists():
        pytest.skip("make engine-bench builds it")
    result = subprocess.run([program, "--no=1"], capture_output=True, text=True, env=os.environ)
    assert result.returncode == 2
    assert "--case=all" in result.stderr


def test_a_result_prints_goals():
    result = Result("lookup", 10, 8, {"tiered": 1.0}, {"tiered": 0.5}, {}, [Goal("x", 1, 2)])
    assert str(result).splitlines()[1:] == [
        "    tf_hps: 1.000 ms, best 0.500",
        "    x: 1.00 (>= 2) short",
    ]
