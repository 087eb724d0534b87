"""The command `tf-hps`: in a fresh process, as a user runs it, once for each kind of output."""

import contextlib
import io
import json
import os
import re
import subprocess
import sys

import fresh
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import tf_hps
from tf_hps.tools import formats
from tf_hps.tools import main as tool

_ROWS = 3000


def run(*arguments, code=0):
    """Runs tf-hps in this process and returns (stdout, stderr)."""
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            returned = tool.main([str(argument) for argument in arguments])
        except SystemExit as exit:  # argparse's
            returned = exit.code
    assert returned == code, (output.getvalue(), errors.getvalue())
    return output.getvalue(), errors.getvalue()


def run_process(*arguments, code=0, pythonpath=""):
    """Runs tf-hps in a process of its own and returns (stdout, stderr)."""
    package = os.path.dirname(os.path.dirname(tf_hps.__file__))
    path = os.pathsep.join([p for p in (pythonpath, package, os.environ.get("PYTHONPATH")) if p])
    done = subprocess.run(
        [sys.executable, "-m", "tf_hps", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout, done.stderr


def run_json(*arguments, **kwargs):
    """Runs tf-hps with --json and returns what it printed, parsed."""
    return json.loads(run(*arguments, "--json", **kwargs)[0])


def contents(path, name="user"):
    with tf_hps.Store(path, dram_bytes="4MiB") as store:
        return fresh.contents(store.tables[name])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Paths of a store, a checkpoint and a SavedModel, and what their table holds."""
    folder = tmp_path_factory.mktemp("trained")
    paths = {
        "store": folder / "store",
        "checkpoint": folder / "ckpt" / "ckpt-1",
        "SavedModel": folder / "served",
    }
    with tf_hps.Store(paths["store"], dram_bytes="1MiB") as store:
        layer = tf_hps.HPSEmbedding(None, 4, input_length=5, store=store, name="user")
        model = tf_keras.Sequential([layer, tf_keras.layers.Flatten(), tf_keras.layers.Dense(1)])
        model.compile(tf_hps.HPSOptimizer(tf_keras.optimizers.Adagrad(0.1)), "mse")
        keys = np.arange(-_ROWS // 2, _ROWS // 2).reshape(-1, 5)
        model.fit(keys, np.ones(len(keys)), batch_size=100, verbose=0)
        tf.train.Checkpoint(model=model).write(str(paths["checkpoint"]))
        model.save(paths["SavedModel"], save_format="tf")
        store.commit()
        paths["contents"] = fresh.contents(layer.table)
    assert len(paths["contents"][0]) == _ROWS
    return paths


@pytest.fixture(params=["store", "checkpoint", "SavedModel"])
def kind(request):
    return request.param


def test_help_has_examples_and_exit_codes():
    assert "exit codes: 0" in run_process("--help")[0]
    for command in ("inspect", "verify", "export", "import", "compact"):
        assert "examples:\n  tf-hps " + command in run(command, "--help")[0]
    assert "usage" in run("explode", code=2)[1]
    assert "usage" in run("inspect", code=2)[1]


def test_a_path_that_is_nothing(tmp_path):
    for path in (tmp_path, tmp_path / "nothing"):
        assert str(path) in run("verify", path, code=1)[1]


def test_errors_are_one_line(tmp_path):
    (tmp_path / "FORMAT").write_text("another\n")
    output, errors = run_process("inspect", tmp_path, code=1)
    assert not output
    assert re.fullmatch(r'tf-hps: .*FORMAT says "another".*\n', errors)


def test_inspect(trained, kind):
    report = run_json("inspect", trained[kind])
    (table,) = report["tables"]
    assert report["kind"] == kind
    assert table["name"] == "user"
    assert table["rows"] == _ROWS and table["dim"] == 4 and table["step"] == 6
    assert table["optimizer"] == "adagrad(initial_accumulator_value=0.1)"
    assert table["row_bytes"] == 12 + 16 + 4 * 4 * 2
    assert table["ssd_bytes"] == _ROWS * table["row_bytes"]
    assert report["file_bytes"] > table["ssd_bytes"] * 0.8
    assert report["disk_bytes"] >= report["file_bytes"] > 0
    output, _ = run("inspect", trained[kind])
    assert f"user   {_ROWS:,}    4" in output


def test_inspect_and_verify_a_store_in_use(tmp_path):
    with tf_hps.Store(tmp_path) as store:
        table = tf_hps.Table("user", 2, store=store)
        table.upsert([1], [[1, 2]])
        assert json.loads(run_process("inspect", tmp_path, "--json")[0])["commit"] == 0
        store.commit()
        table.upsert([2, 3], np.zeros([2, 2]))
        report = json.loads(run_process("inspect", tmp_path, "--json")[0])
        assert report["commit"] == 1 and report["tables"][0]["rows"] == 1
        assert run_process("verify", tmp_path)[0] == ""
        table.lookup([1, 2, 3])


def test_verify_of_what_is_sound_is_silent(trained, kind):
    before = _snapshot(trained["store"])
    assert run_process("verify", trained[kind]) == ("", "")
    report = run_json("verify", trained[kind])
    assert report["ok"] and report["findings"] == [] and report["rows"] == _ROWS
    assert report["files"] > 0
    assert _snapshot(trained["store"]) == before


def _snapshot(folder):
    files = [p for p in sorted(folder.rglob("*")) if p.is_file()]
    return {p: (p.read_bytes(), p.stat().st_mtime_ns, p.stat().st_nlink) for p in files}


def _copy(trained, kind, target):
    """Copies a store, checkpoint or SavedModel; returns its path there."""
    source = trained[kind] if kind != "checkpoint" else trained[kind].parent
    subprocess.run(["cp", "-r", source, target], check=True)
    return target if kind != "checkpoint" else target / trained[kind].name


def _flip(data):
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 4]) + data[middle + 1 :]


_DAMAGE = {
    "flipped": _flip,
    "truncated": lambda data: data[:-1],
    "empty": lambda data: b"",
    "grown": lambda data: data + b"garbage",
    "missing": lambda data: None,
}
_FILES = {
    "store": ["FORMAT", "CURRENT", "commits/*/MANIFEST", "commits/*/*/CURRENT"]
    + ["commits/*/*/MANIFEST-*", "commits/*/*/*.ldb"],
    "checkpoint": ["*.data-h*", "*.index"],
    "SavedModel": ["variables/*.data-h*"],
}


def test_verify_finds_each_kind_of_damage_and_names_the_file(trained, kind, tmp_path):
    """Damages every file in every way, in one process: starting one takes seconds."""
    path = _copy(trained, kind, tmp_path / "copy")
    files = [f for pattern in _FILES[kind] for f in sorted((tmp_path / "copy").glob(pattern))]
    assert len(files) >= 4
    found = json.loads(fresh.run(_DAMAGE_EACH, path, *files, header=""))
    assert len(found) == len(files) * len(_DAMAGE)
    for file, damage, report in found:
        named = {finding["path"] for finding in report["findings"] if finding["damage"]}
        assert named == {file}, (file, damage, report)
        assert not report["ok"]


_DAMAGE_EACH = """
import json, os, sys
import test_cli
from tf_hps.tools import verification

path, *files = sys.argv[1:]
results = []
for file in files:
    with open(file, "rb") as opened:
        sound = opened.read()
    for name, damage in test_cli._DAMAGE.items():
        data = damage(sound)
        os.remove(file)
        if data is not None:
            with open(file, "wb") as opened:
                opened.write(data)
        results.append((file, name, verification.verify(path)))
        with open(file, "wb") as opened:
            opened.write(sound)
assert verification.verify(path)["ok"]
print(json.dumps(results))
"""


def test_verify_prints_the_damage_and_exits_with_1(trained, tmp_path):
    path = _copy(trained, "store", tmp_path / "copy")
    (file,) = sorted(path.glob("commits/*/ssd-0/*.ldb"))[:1]
    file.write_bytes(_flip(file.read_bytes()))
    output, _ = run("verify", path, code=1)
    assert re.fullmatch(rf"damage: {re.escape(str(file))}: is damaged: .*block.*\n", output)
    assert not run_json("verify", path, code=1)["ok"]


def test_verify_finds_a_wrong_row_count(trained, tmp_path):
    path = _copy(trained, "store", tmp_path / "copy")
    (manifest,) = path.glob("commits/*/MANIFEST")
    body = (
        manifest.read_text().replace(f"rows={_ROWS}", f"rows={_ROWS + 1}").rsplit("checksum ", 1)[0]
    )
    manifest.write_text(f"{body}checksum {_stable_hash(body):016x}\n")
    (finding,) = run_json("verify", path, code=1)["findings"]
    assert finding["path"] == str(manifest)
    assert f"has {_ROWS + 1} rows, and there are {_ROWS}" in finding["problem"]


def _stable_hash(text):
    """FNV-1a, then the finalizer of SplitMix64 (docs/format.md)."""
    mask = 2**64 - 1
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 & mask
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        value = (value ^ value >> shift) * factor & mask
    return value ^ value >> 31


def test_verify_notes_files_of_a_stale_save(trained, tmp_path):
    path = _copy(trained, "checkpoint", tmp_path / "copy")
    stale = path.parent / f"{path.name}.data-h0000-of-zzzzz"
    stale.write_text("left over")
    output, _ = run("verify", path)
    assert output.startswith(f"note: {stale}: is of a save that")


@pytest.mark.parametrize(
    "kind, format",
    [("store", "npz"), ("store", "npy"), ("checkpoint", "npz"), ("SavedModel", "npy")],
)
def test_export_and_import_with_numpy(trained, kind, format, tmp_path):
    options = ["--format", format, "--chunk-rows", 1000, "--state"]
    report = run_json("export", trained[kind], tmp_path / "out", *options)
    (table,) = report["tables"]
    assert table["rows"] == _ROWS and table["table"] == "user"
    assert table["file"] == str(tmp_path / "out" / "user")
    _assert_parts(tmp_path / "out" / "user", format, trained["contents"])
    imported = run_json("import", tmp_path / "new", tmp_path / "out")
    assert imported["commit"] == 1 and imported["tables"][0]["rows"] == _ROWS
    keys, weights, _ = contents(tmp_path / "new")
    np.testing.assert_array_equal(keys, trained["contents"][0])
    np.testing.assert_array_equal(weights, trained["contents"][1])


@pytest.mark.parametrize("name", [".", "..", "...", "a/../b"])
def test_export_writes_nowhere_but_into_its_folder(tmp_path, name):
    with tf_hps.Store(tmp_path / "s") as store:
        tf_hps.Table(name, 2, store=store).upsert([1], [[1.0, 2.0]])
    (tmp_path / "parent").mkdir()
    precious = tmp_path / "parent" / "precious"
    precious.write_text("data")
    for options in ([], ["--overwrite"]):
        output = tmp_path / "parent" / "out"
        report = run_json("export", tmp_path / "s", output, "--format", "npz", *options)
        assert os.path.dirname(report["tables"][0]["file"]) == str(output)
    assert precious.read_text() == "data" and len(os.listdir(output)) == 1
    with tf_hps.Store(tmp_path / "t") as store:
        pass
    run("import", tmp_path / "t", report["tables"][0]["file"])
    assert contents(tmp_path / "t", name)[0].tolist() == [1]


def test_names_are_shown_on_a_line(tmp_path):
    with tf_hps.Store(tmp_path / "s") as store:
        tf_hps.Table("two\nlines\0" + "x" * 300, 2, store=store)
    output = run("inspect", tmp_path / "s")[0]
    assert "two\\nlines\\x00xxx" in output and "…" in output and "\0" not in output


def test_export_overwrites_only_if_told_to(trained, tmp_path):
    arguments = ["export", trained["store"], tmp_path, "--format", "npz", "--table", "user"]
    run(*arguments)
    assert "user is there already" in run(*arguments, code=1)[1]
    run(*arguments, "--overwrite")
    assert "It has: user" in run(*arguments, "--table", "item", code=1)[1]


def _assert_parts(folder, format, expected):
    names = ["keys", "weights", "accumulator"]
    if format == "npz":
        parts = [np.load(part) for part in sorted(folder.glob("part-*.npz"))]
        assert len(parts) == 3
        columns = [np.concatenate([part[name] for part in parts]) for name in names]
    else:
        columns = [
            np.concatenate([np.load(part) for part in sorted(folder.glob(f"part-*.{name}.npy"))])
            for name in names
        ]
    for column, values in zip(columns, expected, strict=True):
        np.testing.assert_array_equal(column, values)
    about = json.loads((folder / "table.json").read_text())
    assert about["name"] == "user" and about["slots"] == ["accumulator"]


def test_export_and_import_with_parquet(trained, kind, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    run("export", trained[kind], tmp_path / "out", "--chunk-rows", 1000, "--state")
    file = parquet.ParquetFile(tmp_path / "out" / "user.parquet")
    assert file.num_row_groups == 3
    assert [str(field.type) for field in file.schema_arrow][0] == "int64"
    table = file.read()
    for name, values in zip(("key", "weights", "accumulator"), trained["contents"], strict=True):
        column = table[name].to_numpy()
        np.testing.assert_array_equal(np.stack(column) if name != "key" else column, values)
    assert json.loads(file.schema_arrow.metadata[b"tf_hps"])["rows"] == _ROWS
    run("import", tmp_path / "new", tmp_path / "out" / "user.parquet", "--chunk-rows", 700)
    np.testing.assert_array_equal(contents(tmp_path / "new")[1], trained["contents"][1])


def test_parquet_written_by_others(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow as pa

    columns = {"key": [1, -7], "weights": [[1.0, 2.0], [3.0, 4.0]]}
    parquet.write_table(pa.table(columns), tmp_path / "x.parquet")
    assert "--name" in run("import", tmp_path / "new", tmp_path / "x.parquet", code=1)[1]
    run("import", tmp_path / "new", tmp_path / "x.parquet", "--name", "user", "--seed", 5)
    assert run_json("inspect", tmp_path / "new")["tables"][0]["seed"] == 5
    assert contents(tmp_path / "new")[1].tolist() == [[3, 4], [1, 2]]
    parquet.write_table(pa.table({"id": [1]}), tmp_path / "y.parquet")
    assert "no column key" in run("import", tmp_path / "new", tmp_path / "y.parquet", code=1)[1]


def test_without_pyarrow_parquet_says_what_to_install(trained, tmp_path):
    (tmp_path / "pyarrow.py").write_text("raise ImportError('hidden')\n")
    errors = run_process(
        "export", trained["store"], tmp_path / "o", code=1, pythonpath=str(tmp_path)
    )[1]
    assert "tf-hps[parquet]" in errors and "--format npz" in errors
    assert not (tmp_path / "o").exists()


def test_import_into_a_table_keeps_its_state_and_other_rows(trained, tmp_path):
    path = _copy(trained, "store", tmp_path / "copy")
    np.savez(tmp_path / "rows.npz", keys=[0, 10**12], weights=np.full([2, 4], 9, np.float32))
    report = run_json("import", path, tmp_path / "rows.npz", "--name", "user")
    assert report["tables"][0]["rows_read"] == 2 and report["tables"][0]["rows"] == _ROWS + 1
    keys, weights, state = contents(path)
    before = trained["contents"]
    at = np.searchsorted(keys, 0)
    np.testing.assert_array_equal(weights[at], [9] * 4)
    np.testing.assert_array_equal(state[:-1], before[2])
    np.testing.assert_array_equal(np.delete(weights[:-1], at, 0), np.delete(before[1], at, 0))


def test_a_failed_import_changes_nothing(trained, tmp_path):
    path = _copy(trained, "store", tmp_path / "copy")
    np.savez(tmp_path / "good.npz", keys=[0], weights=np.ones([1, 4]))
    np.savez(tmp_path / "bad.npz", keys=[0], weights=np.ones([1, 5]))
    files = [tmp_path / "good.npz", tmp_path / "bad.npz"]
    errors = run("import", path, *files, "--name", "user", code=1)[1]
    assert "bad.npz: weights have 5 elements, and the rows of table 'user' 4" in errors
    fresh.assert_same_contents(contents(path), trained["contents"])


def test_compact_frees_what_was_removed(tmp_path):
    with tf_hps.Store(tmp_path / "s", dram_bytes="1MiB", keep_commits=2) as store:
        table = tf_hps.Table("user", 8, store=store)
        for i in range(3):
            table.upsert(np.arange(20000), np.full([20000, 8], i))
            store.commit()
        table.remove(np.arange(1000, 20000))
    report = run_json("compact", tmp_path / "s")
    assert report["after"]["file_bytes"] < 100_000 < report["before"]["file_bytes"]
    assert len(report["commits"]) == 2  # as many as there were
    assert run("verify", tmp_path / "s")[0] == ""
    keys, weights, _ = contents(tmp_path / "s")
    assert len(keys) == 1000 and (weights == 2).all()
    assert "last commit" in run("compact", tmp_path / "s")[0]


def test_only_stores_are_compacted(trained):
    assert "only a store" in run("compact", trained["SavedModel"], code=1)[1]


def test_exports_leave_older_commits_alone(tmp_path):
    with tf_hps.Store(tmp_path / "s", keep_commits=3) as store:
        table = tf_hps.Table("user", 2, store=store)
        for i in range(3):
            table.upsert([i], [[i, i]])
            store.commit()
        store.close(commit=False)
    run("export", tmp_path / "s", tmp_path / "out", "--format", "npz")
    assert run_json("inspect", tmp_path / "s")["commits"] == [1, 2, 3]


def test_a_write_that_fails_leaves_no_file(tmp_path):
    target = formats.output_path(str(tmp_path), "t", "npz")
    with pytest.raises(RuntimeError), formats.writer(target, "npz", {"dim": 1}) as write:
        write({"keys": np.zeros(1, np.int64)})
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
