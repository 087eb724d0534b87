"""The command `tf-hps` and commits: those that are kept, damaged ones, and those it makes."""

import os
import shutil

import numpy as np
import pytest
import tensorflow as tf
from test_cli import _flip, contents, run, run_json

import tf_hps


@pytest.fixture
def kept(tmp_path):
    """The path of a store that keeps three commits, of 1000, 2000 and 3000 rows."""
    path = tmp_path / "kept"
    with tf_hps.Store(path, dram_bytes="1MiB", keep_commits=3) as store:
        table = tf_hps.Table("user", 8, store=store)
        for i in range(3):
            table.upsert(np.arange(1000 * i, 1000 * (i + 1)), np.full([1000, 8], i + 1.0))
            store.commit()
    return path


def table_files(path, commit):
    return sorted(path.glob(f"commits/{commit:06}/*/*.ldb"))


def damage(file):
    file.write_bytes(_flip(file.read_bytes()))


def damage_only_in(path, commit):
    """Damages a file that only this commit has, and returns it."""
    inodes = {f.stat().st_ino for n in (1, 2, 3) if n != commit for f in table_files(path, n)}
    (file, *_) = [f for f in table_files(path, commit) if f.stat().st_ino not in inodes]
    damage(file)
    return file


def test_verify_checks_every_commit_that_is_kept(kept):
    assert run_json("verify", kept)["rows"] == 6000
    shared = table_files(kept, 1)[0]
    damage(shared)
    found = {f["path"] for f in run_json("verify", kept, code=1)["findings"]}
    names = {str(f) for f in kept.glob("commits/*/*/*.ldb") if f.samefile(shared)}
    assert found == names and len(names) > 1


def test_verify_of_one_commit(kept):
    file = damage_only_in(kept, 3)
    for options, code in (([], 1), (["--commit", 3], 1), (["--commit", 2], 0)):
        assert (str(file) in run("verify", kept, *options, code=code)[0]) == bool(code)
    assert run_json("verify", kept, "--commit", 1)["rows"] == 1000
    assert "no commit 9; it has 1, 2, 3" in run("verify", kept, "--commit", 9, code=1)[1]


def test_verify_finds_an_older_manifest_damaged(kept):
    manifest = kept / "commits" / "000002" / "MANIFEST"
    damage(manifest)
    (finding,) = run_json("verify", kept, code=1)["findings"]
    assert finding["path"] == str(manifest)


def test_verify_says_missing_of_what_is_missing(kept):
    file = table_files(kept, 3)[0]
    file.unlink()
    assert run("verify", kept, code=1)[0] == f"damage: {file}: is missing\n"


def test_inspect_and_export_of_one_commit(kept, tmp_path):
    report = run_json("inspect", kept)
    assert report["commit"] == 3 and report["keep_commits"] == 3
    assert run_json("inspect", kept, "--commit", 2)["tables"][0]["rows"] == 2000
    assert "commit      3, of dense step 0; others: 1, 2, 3 are kept" in run("inspect", kept)[0]
    run("export", kept, tmp_path / "o", "--format", "npz", "--commit", 1)
    assert len(np.load(tmp_path / "o" / "user" / "part-00000.npz")["keys"]) == 1000
    assert run_json("inspect", kept)["commits"] == [1, 2, 3]
    assert "no commit 4" in run("export", kept, tmp_path / "p", "--commit", 4, code=1)[1]


@pytest.mark.parametrize("command", ["compact", "import"])
def test_a_commit_that_is_made_keeps_as_many_as_the_store_says(kept, tmp_path, command):
    np.savez(tmp_path / "rows.npz", keys=[1], weights=np.zeros([1, 8], np.float32))
    more = [tmp_path / "rows.npz", "--name", "user"] if command == "import" else []
    run(command, kept, *more)
    assert run_json("inspect", kept)["commits"] == [2, 3, 4]


def test_compact_refuses_a_damaged_store(kept):
    run("compact", kept)  # after which LevelDB has nothing to read anew
    file = table_files(kept, 4)[0]
    sound = file.read_bytes()
    damage(file)
    assert f"is damaged: {file}: is damaged" in run("compact", kept, code=1)[1]
    assert run_json("inspect", kept)["commits"] == [2, 3, 4]
    file.write_bytes(sound)
    run("compact", kept)


def test_errors_of_a_damaged_store_name_the_file_and_what_helps(kept, tmp_path):
    file = damage_only_in(kept, 3)
    output, errors = run("export", kept, tmp_path / "o", "--format", "npz", code=1)
    assert not output and f"`tf-hps verify {kept}` lists" in errors, errors
    damage(file)  # undone
    data = file.read_bytes()
    file.write_bytes(data[:100])
    with pytest.raises(tf.errors.DataLossError) as error:
        tf_hps.Store(kept)
    for part in (str(file), f"tf-hps verify {kept}", "it has commits 1 and 2", "commit=<number>"):
        assert part in str(error.value), error.value
    with tf_hps.Store(kept, commit=2) as store:
        assert store.tables["user"].size() == 2000
    assert not (kept / "live").exists()


def test_a_damaged_current_is_survived_by_its_commits(kept):
    (kept / "CURRENT").write_text("junk")
    found = run_json("verify", kept, code=1)
    assert [f["path"] for f in found["findings"]] == [str(kept / "CURRENT")]
    assert found["rows"] == 6000
    with pytest.raises(tf.errors.DataLossError, match="commits 1, 2 and 3; commit=<number>"):
        tf_hps.Store(kept)
    with tf_hps.Store(kept, commit=3) as store:
        assert store.commit() == 4
    assert len(contents(kept)[0]) == 3000 and run("verify", kept)[0] == ""


def test_json_before_the_command(kept):
    assert run("--json", "inspect", kept) == run("inspect", kept, "--json")


def test_import_into_a_checkpoint_makes_no_store(kept, tmp_path):
    np.savez(tmp_path / "rows.npz", keys=[1], weights=np.zeros([1, 8], np.float32))
    with tf_hps.Store(kept) as store:
        prefix = tf.train.Checkpoint(t=store.tables["user"]).save(str(tmp_path / "c" / "ckpt"))
    errors = run("import", prefix, tmp_path / "rows.npz", "--name", "user", code=1)[1]
    assert "is a checkpoint; rows can be put into a store only" in errors
    assert not os.path.exists(prefix)
    assert prefix in run("inspect", tmp_path / "c")[0]
    (tmp_path / "c" / "checkpoint").write_text("junk")
    assert f"Name one: {prefix}" in run("verify", tmp_path / "c", code=1)[1]
    assert run_json("verify", prefix + ".index")["ok"]


@pytest.mark.parametrize("there", [False, True])
def test_an_import_that_fails_leaves_no_new_store(tmp_path, there):
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow as pa

    keys = np.random.default_rng(1).integers(0, 2**60, 50_000)
    rows = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(200_000, np.float32)), 4)
    file = tmp_path / "x.parquet"
    table = pa.table({"key": keys, "weights": rows})
    parquet.write_table(table, file, row_group_size=10_000, write_page_checksum=True)
    data = bytearray(file.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 1000] = bytes(1000)
    file.write_bytes(data)
    if there:
        (tmp_path / "new").mkdir()
    errors = run("import", tmp_path / "new", file, "--name", "t", code=1)[1]
    assert f"{file} cannot be read as Parquet" in errors
    assert (tmp_path / "new").exists() == there
    if there:
        assert os.listdir(tmp_path / "new") == []
        shutil.rmtree(tmp_path / "new")


def test_damage_of_an_exported_parquet_file_is_found(kept, tmp_path):
    pytest.importorskip("pyarrow")
    run("export", kept, tmp_path / "o")
    file = tmp_path / "o" / "user.parquet"
    damage(file)
    errors = run("import", tmp_path / "new", file, code=1)[1]
    assert f"{file} cannot be read as Parquet" in errors
    assert not (tmp_path / "new").exists()
