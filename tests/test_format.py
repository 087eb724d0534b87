"""The programs in docs/format.md read what was written here."""

import pathlib
import re

import numpy as np
import pytest

import tf_hps

_DOCUMENT = pathlib.Path(__file__).parent.parent / "docs" / "format.md"


@pytest.fixture(scope="module")
def reader():
    """The names that the document's Python defines."""
    names = {}
    for program in re.findall(r"```python\n(.*?)```", _DOCUMENT.read_text(), re.DOTALL):
        exec(program, names)
    return names


def test_rows_of_a_store(tmp_path, reader):
    name = 'odd "name"\\\n'
    keys = np.arange(-2000, 2000)
    keys[0], keys[-1] = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    with tf_hps.Store(tmp_path / "s", dram_bytes="64KiB") as store:
        table = tf_hps.Table(name, 3, store=store, initializer="uniform")
        rows = table.lookup(keys, training=True).numpy()
        table.lookup(keys[:100], training=True)
        table.upsert(keys[100:200], rows[100:200])
        tf_hps.Table("other", 1, store=store).upsert([1], [[0.25]])
    read = {row[0]: row[1:] for row in reader["read_table"](tmp_path / "s", name)}
    assert read.keys() == set(keys.tolist())
    for i, key in enumerate(keys.tolist()):
        weights, state, version, frequency = read[key]
        np.testing.assert_array_equal(np.float32(weights), rows[i])
        assert state == ()
        assert version == int(100 <= i < 200)
        assert frequency == (2 if i < 100 else 1)


def test_state_of_rows(tmp_path, reader):
    import tf_keras

    layer = tf_hps.HPSEmbedding(None, 2, store=tf_hps.Store(tmp_path / "s"), name="e")
    model = tf_keras.Sequential(
        [tf_keras.Input([2], dtype="int64"), layer, tf_keras.layers.GlobalAveragePooling1D()]
    )
    optimizer = tf_keras.optimizers.Adagrad(0.1, initial_accumulator_value=0.5)
    model.compile(tf_hps.HPSOptimizer(optimizer), "mse")
    model.fit(np.array([[1, 2], [3, -1]]), np.ones([2, 2]), verbose=0)
    layer.table.store.close()
    states = {row[0]: row[2] for row in reader["read_table"](tmp_path / "s", "e")}
    assert states.keys() == {1, 2, 3, -1}
    assert all(len(state) == 2 and min(state) > 0.5 for state in states.values())


def test_damage_is_noticed(tmp_path, reader):
    with tf_hps.Store(tmp_path / "s") as store:
        tf_hps.Table("t", 1, store=store).upsert([1], [[0.25]])
    manifest = tmp_path / "s" / "commits" / "000001" / "MANIFEST"
    manifest.write_bytes(manifest.read_bytes().replace(b"rows=1", b"rows=2"))
    with pytest.raises(ValueError, match="damaged"):
        list(reader["read_table"](tmp_path / "s", "t"))


def test_the_example_is_a_manifest(reader):
    text = re.search(r"^    tf_hps snapshot 1\n(?:    .+\n)+", _DOCUMENT.read_text(), re.MULTILINE)
    lines = reader["parse_manifest"](re.sub("^    ", "", text[0], flags=re.MULTILINE).encode())
    assert [word for word, _ in lines] == ["store", "table", "file", "file"]


def test_files_of_a_checkpoint(tmp_path, reader, store):
    import tensorflow as tf

    table = tf_hps.Table("t", 1, store=store)
    table.upsert(np.arange(10), np.ones([10, 1]))
    tf.train.Checkpoint(t=table).write(str(tmp_path / "c"))
    (manifest,) = tmp_path.glob("c.data-h0000-of-?????")
    lines = reader["parse_manifest"](manifest.read_bytes())
    assert [fields["rows"] for word, fields in lines if word == "table"] == ["10"]
    files = [fields for word, fields in lines if word == "file"]
    for number, fields in enumerate(files, 1):
        digits = np.base_repr(number, 36).lower().zfill(4)
        file = tmp_path / manifest.name.replace("-h0000-", f"-h{digits}-")
        assert file.stat().st_size == int(fields["bytes"])
        if fields["immutable"] == "0":
            assert reader["checksum"](file.read_bytes()) == fields["checksum"]
    assert len(files) == len(list(tmp_path.glob("c.data-h*"))) - 1
