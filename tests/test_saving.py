"""Saving and loading: rows and their state, exactly, in each way that TensorFlow and Keras have."""

import glob
import os

import fresh
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import tf_hps

IDS = np.random.default_rng(1).integers(-50, 50, [96, 3])
INITIALIZER = tf_keras.initializers.GlorotUniform
LABELS = np.random.default_rng(2).random([96, 1])


@pytest.fixture(autouse=True)
def _stores(own_default_store):
    """Each test has its own default store."""


def model_of(optimizer=None, store=None, name="ids"):
    """A small compiled model with one tiered layer."""
    inputs = tf_keras.Input([3], dtype="int64")
    rows = tf_hps.HPSEmbedding(None, 4, store=store, name=name)(inputs)
    score = tf_keras.layers.Dense(1, kernel_initializer=INITIALIZER(seed=1), name="score")
    model = tf_keras.Model(inputs, score(tf_keras.layers.Flatten()(rows)))
    model.compile(tf_hps.HPSOptimizer(optimizer or tf_keras.optimizers.Adam(0.01)), "mse")
    return model


def trained_model(**kwargs):
    model = model_of(**kwargs)
    fit(model)
    assert table_of(model).size() > 50
    return model


def fit(model, **kwargs):
    return model.fit(IDS, LABELS, batch_size=32, shuffle=False, verbose=0, **kwargs)


def table_of(model, name="ids"):
    return model.get_layer(name).table


def assert_same_model(received, expected, iterations=True):
    """Compares rows, state, dense weights and predictions bit by bit."""
    contents = fresh.contents(table_of(expected))
    assert contents[2].any()  # state is there to be compared
    fresh.assert_same_contents(fresh.contents(table_of(received)), contents)
    np.testing.assert_array_equal(
        received.predict(IDS, verbose=0), expected.predict(IDS, verbose=0)
    )
    if iterations:
        assert int(received.optimizer.iterations) == int(expected.optimizer.iterations) > 0


# tf.train.Checkpoint


def table_with(rows, name="t", dim=3, store=None):
    table = tf_hps.Table(name, dim, store=store)
    if rows:
        table.upsert(np.arange(rows) - rows // 2, np.random.default_rng(rows).random([rows, dim]))
    return table


def test_checkpoint_restores_rows_exactly(tmp_path):
    table, other = table_with(100), table_with(10, "other", 7)
    before, before_other = fresh.contents(table), fresh.contents(other)
    checkpoint = tf.train.Checkpoint(table=table, deeper=tf.train.Checkpoint(other=other))
    prefix = checkpoint.save(tmp_path / "c")
    table.upsert([0, 1000], np.ones([2, 3]))
    table.remove([1])
    other.remove(np.arange(-10, 10))
    checkpoint.restore(prefix).assert_consumed()
    fresh.assert_same_contents(fresh.contents(table), before)
    fresh.assert_same_contents(fresh.contents(other), before_other)


def test_checkpoint_restores_into_a_fresh_process(tmp_path):
    table = table_with(100)
    fresh.save_contents(tmp_path / "expected.npz", table)
    prefix = tf.train.Checkpoint(table=table).write(tmp_path / "c")
    fresh.run(
        """
        import fresh
        table = tf_hps.Table("another name", 3, tf_hps.Store(dram_bytes="16KiB"), seed=5)
        tf.train.Checkpoint(table=table).read(sys.argv[1]).assert_consumed()
        fresh.assert_same_contents(fresh.contents(table), fresh.load_contents(sys.argv[2]))
        """,
        prefix,
        tmp_path / "expected.npz",
    )


def test_restored_table_has_the_saved_initial_rows(tmp_path):
    table = tf_hps.Table("t", 3, initializer="normal", seed=8)
    expected = table.lookup([10**9]).numpy()
    prefix = tf.train.Checkpoint(table=table).write(tmp_path / "c")
    with tf_hps.Store() as store:
        other = tf_hps.Table("other", 3, store=store)
        tf.train.Checkpoint(table=other).read(prefix)
        np.testing.assert_array_equal(other.lookup([10**9]).numpy(), expected)
        again = tf_hps.Table("other", 3, store=store, initializer="normal", seed=8)
        assert again.handle is other.handle


def test_restored_table_of_another_name_can_be_reopened(tmp_path):
    """The initial rows of a checkpoint's table go on under the new name, also after a commit."""
    prefix = tf.train.Checkpoint(table=table_with(10)).write(tmp_path / "c")
    with tf_hps.Store(tmp_path / "s") as store:
        table = tf_hps.Table("renamed", 3, store=store)
        tf.train.Checkpoint(table=table).read(prefix)
        expected = table.lookup([10**9]).numpy()
    with tf_hps.Store(tmp_path / "s") as store:
        table = tf_hps.Table("renamed", 3, store=store)
        assert table.size() == 10
        np.testing.assert_array_equal(table.lookup([10**9]).numpy(), expected)


def test_tables_of_several_stores_are_one_checkpoint(tmp_path):
    with tf_hps.Store() as first, tf_hps.Store() as second:
        tables = [table_with(20, store=first), table_with(30, store=second)]
        before = [fresh.contents(table) for table in tables]
        prefix = tf.train.Checkpoint(tables=tables).write(tmp_path / "c")
    together = [table_with(1, "a"), table_with(2, "b")]  # now in one store
    tf.train.Checkpoint(tables=together).read(prefix).assert_consumed()
    for table, expected in zip(together, before, strict=True):
        fresh.assert_same_contents(fresh.contents(table), expected)


def test_tables_made_after_the_restore_get_their_rows(tmp_path):
    """Also where the table comes into being while a function is traced."""
    saved = tf.train.Checkpoint(table=table_with(50))
    before = fresh.contents(saved.table)
    prefix = saved.write(tmp_path / "c")
    for make in (lambda: table_with(0, "later"), tf.function(lambda: table_with(0, "traced"))):
        later = tf.train.Checkpoint()
        status = later.read(prefix)
        with pytest.raises(AssertionError, match="Unresolved object.*table"):
            status.assert_consumed()

        def attach(later=later, make=make):
            later.table = make.python_function() if hasattr(make, "python_function") else make()
            return later.table.lookup([0])

        rows = tf.function(attach)() if hasattr(make, "python_function") else attach()
        status.assert_consumed()
        fresh.assert_same_contents(fresh.contents(later.table), before)
        np.testing.assert_array_equal(rows, saved.table.lookup([0]))


def test_overwritten_checkpoint_is_the_new_one_and_leaves_no_old_files(tmp_path):
    table = table_with(50)
    checkpoint = tf.train.Checkpoint(table=table)
    generations = []
    for i in range(5):
        table.upsert([i], np.full([1, 3], i))
        checkpoint.write(tmp_path / "c")
        generations.append({name[-5:] for name in glob.glob(f"{tmp_path}/c.data-h*")})
        before = fresh.contents(table)
        table.upsert([i], np.zeros([1, 3]))
        checkpoint.read(str(tmp_path / "c")).assert_consumed()
        fresh.assert_same_contents(fresh.contents(table), before)
    assert [len(ids) for ids in generations] == [
        1,
        2,
        2,
        2,
        2,
    ]  # the former one stays until the next save
    assert not generations[1] & generations[3]


def test_save_that_fails_leaves_the_old_checkpoint(tmp_path):
    table = table_with(50)
    before = fresh.contents(table)
    checkpoint = tf.train.Checkpoint(table=table)
    checkpoint.write(tmp_path / "c")
    unsaved = tf.train.Checkpoint(table=table, other=table_with(1, "closed", store=tf_hps.Store()))
    unsaved.other.store.close()
    with pytest.raises(tf.errors.FailedPreconditionError, match="closed"):
        unsaved.write(tmp_path / "c")
    table.remove(np.arange(-100, 100))
    checkpoint.read(str(tmp_path / "c")).assert_consumed()
    fresh.assert_same_contents(fresh.contents(table), before)


def test_manager_keeps_and_deletes_all_files_of_a_checkpoint(tmp_path):
    table = table_with(50)
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(table=table), tmp_path, max_to_keep=2)
    expected = {}
    for i in range(4):
        table.upsert([i], np.full([1, 3], i))
        expected[manager.save()] = fresh.contents(table)
    names = {name.split(".")[0] for name in os.listdir(tmp_path)}
    assert names == {"checkpoint", "ckpt-3", "ckpt-4"}
    for prefix in manager.checkpoints:
        assert glob.glob(f"{prefix}.data-h*")
        manager.checkpoint.restore(prefix).assert_consumed()
        fresh.assert_same_contents(fresh.contents(table), expected[prefix])


def test_moved_checkpoint_is_restored(tmp_path):
    table = table_with(50)
    before = fresh.contents(table)
    tf.train.Checkpoint(table=table).write(tmp_path / "c")
    (tmp_path / "c.index").parent.joinpath("moved").mkdir()
    for name in glob.glob(f"{tmp_path}/c.*"):
        os.rename(name, f"{tmp_path}/moved/d{name.removeprefix(str(tmp_path / 'c'))}")
    table.remove([0])
    tf.train.Checkpoint(table=table).read(f"{tmp_path}/moved/d").assert_consumed()
    fresh.assert_same_contents(fresh.contents(table), before)


# What cannot be restored is an error, and changes nothing


@pytest.fixture
def unchanged():
    table = table_with(7, "unchanged")
    before = fresh.contents(table)
    yield table
    fresh.assert_same_contents(fresh.contents(table), before)


def test_table_that_the_checkpoint_lacks(tmp_path, unchanged):
    prefix = tf.train.Checkpoint(v=tf.Variable(1.0), t=table_with(3)).write(tmp_path / "c")
    status = tf.train.Checkpoint(v=tf.Variable(2.0), table=unchanged).read(prefix).expect_partial()
    for check in (status.assert_existing_objects_matched, status.assert_consumed):
        with pytest.raises(AssertionError, match="not bound|Unresolved"):
            check()


def test_variable_in_the_table_s_place(tmp_path, unchanged):
    prefix = tf.train.Checkpoint(table=tf.Variable([1.0])).write(tmp_path / "c")
    with pytest.raises(ValueError, match="holds no tf_hps tables.*'unchanged'"):
        tf.train.Checkpoint(table=unchanged).read(prefix)


def test_table_of_another_dim(tmp_path, unchanged):
    prefix = tf.train.Checkpoint(table=table_with(5, dim=4)).write(tmp_path / "c")
    with pytest.raises(tf.errors.InvalidArgumentError, match="dim"):
        tf.train.Checkpoint(table=unchanged).read(prefix)


@pytest.mark.parametrize("number", [0, -1], ids=["manifest", "rows"])
@pytest.mark.parametrize("damage", ["missing", "truncated", "flipped"])
def test_damaged_file(tmp_path, unchanged, number, damage):
    prefix = tf.train.Checkpoint(table=table_with(5000)).write(tmp_path / "c")
    files = sorted(glob.glob(f"{prefix}.data-h*"), key=os.path.getsize)
    file = f"{prefix}.data-h0000-of-{files[0][-5:]}" if number == 0 else files[-1]
    with open(file, "rb") as old:
        data = old.read()
    os.remove(file)
    if damage != "missing":
        middle = len(data) // 2
        with open(file, "wb") as new:
            tail = b"" if damage == "truncated" else bytes([data[middle] ^ 1]) + data[middle + 1 :]
            new.write(data[:middle] + tail)
    with pytest.raises((tf.errors.DataLossError, tf.errors.NotFoundError)) as error:
        tf.train.Checkpoint(table=unchanged).read(prefix)
    assert str(tmp_path) in str(error.value)


def test_remote_checkpoint_is_refused(tmp_path, monkeypatch, unchanged):
    monkeypatch.chdir(tmp_path)  # TensorFlow makes a directory of that name
    with pytest.raises(tf.errors.OpError, match="ram://"):
        tf.train.Checkpoint(table=unchanged).write("ram://c")


def test_asynchronous_checkpoint_is_refused(tmp_path, unchanged):
    checkpoint = tf.train.Checkpoint(table=unchanged, v=tf.Variable(1.0))
    options = tf.train.CheckpointOptions(experimental_enable_async_checkpoint=True)
    with pytest.raises(ValueError, match="Asynchronous checkpoints.*later step"):
        checkpoint.save(tmp_path / "c", options=options)
    assert not os.listdir(tmp_path)


def test_dense_checkpoint_for_a_tiered_layer(tmp_path):
    inputs = tf_keras.Input([3], dtype="int64")
    rows = tf_keras.layers.Embedding(100, 4, name="ids")(inputs)
    dense = tf_keras.Model(inputs, tf_keras.layers.Dense(1)(tf_keras.layers.Flatten()(rows)))
    dense.save_weights(tmp_path / "w")
    with pytest.raises(ValueError, match="no tf_hps tables|dense matrix"):
        model_of().load_weights(tmp_path / "w")


# tf_keras


def test_weights_are_loaded(tmp_path):
    model = trained_model()
    model.save_weights(tmp_path / "w")
    other = trained_model(
        optimizer=tf_keras.optimizers.SGD()
    )  # another kind of state, to be replaced
    other = model_of()
    other.load_weights(tmp_path / "w")
    fit(other), fit(model)
    assert_same_model(other, model)


class Subclassed(tf_keras.Model):
    def __init__(self):
        super().__init__()
        self.embedding = tf_hps.HPSEmbedding(None, 4, name="ids")
        self.top = tf_keras.Sequential([tf_keras.layers.Flatten(), tf_keras.layers.Dense(1)])

    def call(self, ids):
        return self.top(self.embedding(ids))


def test_weights_loaded_before_the_layer_is_built(tmp_path):
    models = [Subclassed(), Subclassed()]
    for model in models:
        model.compile(tf_hps.HPSOptimizer(tf_keras.optimizers.Adagrad(0.1)), "mse")
    fit(models[0])
    models[0].save_weights(tmp_path / "w")
    models[1].load_weights(tmp_path / "w")
    for model in models:
        fit(model)
    first, second = (fresh.contents(model.embedding.table) for model in models)
    fresh.assert_same_contents(second, first)


def test_weights_go_into_a_store_with_a_path(tmp_path):
    model = trained_model()
    model.save_weights(tmp_path / "w")
    with tf_hps.Store(tmp_path / "s") as store:
        other = model_of(store=store, name="renamed")
        other.load_weights(tmp_path / "w")
    with tf_hps.Store(tmp_path / "s") as store:
        received = fresh.contents(tf_hps.Table("renamed", 4, store=store))
    fresh.assert_same_contents(received, fresh.contents(table_of(model)))


_CONTINUE = """
import fresh, test_saving
model = test_saving.model_of()
{load}
test_saving.fit(model)
fresh.save_contents(sys.argv[2], test_saving.table_of(model))
np.save(sys.argv[3], model.predict(test_saving.IDS, verbose=0))
"""


@pytest.mark.parametrize("way", ["weights", "keras"])
def test_resumed_run_equals_the_uninterrupted_one(tmp_path, way):
    model = trained_model()
    if way == "keras":
        model.save(tmp_path / "m.keras")
        load = f"model = tf_keras.models.load_model('{tmp_path}/m.keras')"
    else:
        model.save_weights(tmp_path / "w")
        load = f"model.load_weights('{tmp_path}/w').assert_existing_objects_matched"
    fresh.run(_CONTINUE.format(load=load), "", tmp_path / "rows.npz", tmp_path / "predicted.npy")
    fit(model)
    fresh.assert_same_contents(
        fresh.load_contents(tmp_path / "rows.npz"), fresh.contents(table_of(model))
    )
    expected = model.predict(IDS, verbose=0)
    np.testing.assert_array_equal(np.load(tmp_path / "predicted.npy"), expected)


def test_model_checkpoint_overwrites_and_restores(tmp_path):
    saver = tf_keras.callbacks.ModelCheckpoint(tmp_path / "w", save_weights_only=True)
    model = model_of()
    fit(model, epochs=3, callbacks=[saver])
    other = model_of()
    other.load_weights(tmp_path / "w")
    assert_same_model(other, model)
    assert len({name[-5:] for name in glob.glob(f"{tmp_path}/w.data-h*")}) == 2


def test_model_checkpoint_of_whole_models(tmp_path):
    saver = tf_keras.callbacks.ModelCheckpoint(f"{tmp_path}/{{epoch}}", save_format="tf")
    model = model_of()
    fit(model, epochs=2, callbacks=[saver])
    assert_same_model(tf_keras.models.load_model(tmp_path / "2"), model, iterations=False)
    assert os.path.isdir(tmp_path / "1")


class _Interrupt(tf_keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            raise InterruptedError


def test_backup_and_restore_continues_an_interrupted_run(tmp_path):
    uninterrupted = model_of()
    fit(uninterrupted, epochs=4)
    with pytest.raises(InterruptedError):
        fit(
            model_of(),
            epochs=4,
            callbacks=[tf_keras.callbacks.BackupAndRestore(tmp_path), _Interrupt()],
        )
    resumed = model_of()
    history = fit(resumed, epochs=4, callbacks=[tf_keras.callbacks.BackupAndRestore(tmp_path)])
    assert history.epoch == [2, 3]
    assert_same_model(resumed, uninterrupted)


@pytest.mark.parametrize("file", ["m.keras", "w.weights.h5"])
def test_keras_files_hold_the_table(tmp_path, file):
    model = trained_model()
    if file.endswith(".keras"):
        model.save(tmp_path / file)
        other = tf_keras.models.load_model(tmp_path / file)
    else:
        model.save_weights(tmp_path / file)
        other = model_of()
        other.load_weights(tmp_path / file)
    assert_same_model(other, model, iterations=file.endswith(".keras"))


def test_keras_file_without_the_table(tmp_path):
    model = trained_model()
    model.save_weights(tmp_path / "w.weights.h5")
    import h5py

    with h5py.File(tmp_path / "w.weights.h5", "a") as file:
        groups = []
        file.visititems(
            lambda name, item: groups.append(name) if name.endswith("/save_id") else None
        )
        for name in groups:
            del file[os.path.dirname(name)]
    assert groups
    before = fresh.contents(table_of(model))
    with pytest.raises(ValueError, match="no rows"):
        model.load_weights(tmp_path / "w.weights.h5")
    fresh.assert_same_contents(fresh.contents(table_of(model)), before)


@pytest.mark.parametrize(
    "use",
    [
        lambda model, path: model.save_weights(path / "w.h5"),
        lambda model, path: model.save(path / "m.h5"),
        lambda model, path: model.get_weights(),
        lambda model, path: model.get_layer("ids").get_weights(),
        lambda model, path: model.set_weights([np.zeros(w.shape) for w in model.weights]),
        lambda model, path: fit(
            model,
            epochs=2,
            callbacks=[tf_keras.callbacks.EarlyStopping("loss", restore_best_weights=True)],
        ),
    ],
    ids=["weights h5", "model h5", "get_weights", "layer", "set_weights", "EarlyStopping"],
)
def test_ways_that_cannot_carry_rows_say_so(tmp_path, use):
    model = trained_model()
    with pytest.raises(TypeError, match="cannot carry the rows of table 'ids'.*save_weights"):
        use(model, tmp_path)


# SavedModel


class Module(tf.Module):
    """Two tables, in one store, without Keras."""

    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, name="ids")])
    def __call__(self, ids):
        return {"rows": tf.concat([self.first.lookup(ids), self.second.lookup(ids)], -1)}


@pytest.fixture
def exported(tmp_path):
    module = Module(table_with(500), tf_hps.Table("other", 2, initializer="normal", seed=4))
    tf.saved_model.save(module, str(tmp_path / "m"))
    ids = np.array([0, 1, -3, 10**15, 0])
    np.savez(tmp_path / "expected.npz", ids=ids, rows=module(ids)["rows"])
    fresh.save_contents(tmp_path / "first.npz", module.first)
    return tmp_path


_LOAD = (
    "ids, expected = np.load(sys.argv[1] + '/expected.npz').values()\nfolder = sys.argv[1] + '/m'\n"
)


def test_saved_model_predicts_the_same_in_a_fresh_process(exported):
    """And its tables are tables, two loads do not share them, and it can be saved again."""
    fresh.run(
        _LOAD
        + """
import fresh, gc
first, second = (tf.saved_model.load(folder) for _ in range(2))
np.testing.assert_array_equal(first(ids)["rows"], expected)
assert first.first.store is first.second.store is not second.first.store
saved = fresh.load_contents(sys.argv[1] + "/first.npz")
fresh.assert_same_contents(fresh.contents(first.first), saved)
second.first.remove(ids)
np.testing.assert_array_equal(first(ids)["rows"], expected)
assert (second(ids)["rows"] != expected).numpy().any()
tf.saved_model.save(first, folder + "2")
serve, path = first.signatures["serving_default"], first.first.store.path
del first, second
gc.collect()
np.testing.assert_array_equal(serve(ids=tf.constant(ids))["rows"], expected)
np.testing.assert_array_equal(tf.saved_model.load(folder + "2")(ids)["rows"], expected)
assert os.path.exists(path)
del serve
gc.collect()
assert not os.path.exists(path)
""",
        exported,
    )


def test_saved_model_is_served_by_a_session(exported):
    """As TensorFlow Serving does: the graph alone, and the budget from the environment."""
    output = fresh.run(
        _LOAD
        + """
os.environ["TF_HPS_SERVING_DRAM_BYTES"] = "4096"
os.environ["TMPDIR"] = stores = sys.argv[1] + "/stores"
os.mkdir(stores)
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    meta = tf.compat.v1.saved_model.load(session, ["serve"], folder)
    signature = meta.signature_def["serving_default"]
    fetch, feed = signature.outputs["rows"].name, signature.inputs["ids"].name
    for _ in range(3):
        np.testing.assert_array_equal(session.run(fetch, {feed: ids}), expected)
    assert len(os.listdir(stores)) == 1  # for both tables
    saver = meta.saver_def
    session.run(saver.save_tensor_name, {saver.filename_tensor_name: sys.argv[1] + "/again"})
table = tf_hps.Table("t", 3)
tf.train.Checkpoint(first=table).read(sys.argv[1] + "/again").expect_partial()
print(table.size(), len(os.listdir(stores)))
""",
        exported,
    )
    assert output.split() == ["500", "1"]  # the session's store is gone, the default one is there


def test_saved_model_without_the_import_names_the_op(exported):
    errors = fresh.run(
        """
        import sys
        import tensorflow as tf
        try:
            tf.saved_model.load(sys.argv[1] + "/m")
        except Exception as error:
            print(error)
        """,
        exported,
        header="",
    )
    assert "TfHps>" in errors


def test_saved_keras_model_predicts_the_same_in_a_fresh_process(tmp_path):
    model = trained_model()
    model.save(tmp_path / "m", save_format="tf")
    np.save(tmp_path / "expected.npy", model.predict(IDS, verbose=0))
    fresh.save_contents(tmp_path / "rows.npz", table_of(model))
    fresh.run(
        """
        import fresh, test_saving
        folder = sys.argv[1]
        expected = np.load(folder + "/expected.npy")
        model = tf_keras.models.load_model(folder + "/m")
        assert type(model.get_layer("ids")) is tf_hps.HPSEmbedding
        np.testing.assert_array_equal(model.predict(test_saving.IDS, verbose=0), expected)
        rows = fresh.load_contents(folder + "/rows.npz")
        fresh.assert_same_contents(fresh.contents(test_saving.table_of(model)), rows)
        test_saving.fit(model)  # can be trained on
        loaded = tf.saved_model.load(folder + "/m")
        outputs = loaded.signatures["serving_default"](tf.constant(test_saving.IDS))
        np.testing.assert_array_equal(outputs["score"], expected)
        """,
        tmp_path,
    )


def test_looking_in_a_loaded_model_changes_nothing(exported):
    loaded = tf.saved_model.load(str(exported / "m"))
    before = fresh.contents(loaded.first)
    loaded(np.arange(10**6, 10**6 + 100))
    fresh.assert_same_contents(fresh.contents(loaded.first), before)
    assert loaded.second.size() == 0
