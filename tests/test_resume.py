"""Training stopped and resumed in a fresh process equals training without a stop, bit for bit."""

import numpy as np
import pytest
from fresh import assert_same_contents, load_contents, run
from twins import OPTIMIZERS

COMMON = """
from fresh import save_contents
from twins import OPTIMIZERS, small_model

folder = sys.argv[1]

def new_model(optimizer, around=lambda optimizer: optimizer):
    tf_keras.utils.set_random_seed(1)
    # Most rows are on SSD: a checkpoint has those, too.
    store = tf_hps.Store(dram_bytes="4KiB")
    layer = tf_hps.HPSEmbedding(None, 5, store=store, name="user")
    model = small_model(layer)
    schedule = tf_keras.optimizers.schedules.ExponentialDecay(0.05, 3, 0.5)
    config = optimizer.get_config() | {"learning_rate": schedule}
    model.compile(around(tf_hps.HPSOptimizer(type(optimizer).from_config(config))), "mse")
    return model, layer.table

def train(model, first, last):
    for step in range(first, last):
        random = np.random.default_rng(step)
        model.train_on_batch(random.integers(-100, 100, [16, 4]), random.uniform(size=[16, 1]))

def finish(name, model, table):
    save_contents(f"{folder}/{name}.npz", table)
    dense = [*model.layers[-1].get_weights(), *(v.numpy() for v in model.optimizer.variables)]
    np.savez(f"{folder}/{name}_dense.npz", *dense)

def checkpoint(model):
    return tf.train.Checkpoint(model=model, optimizer=model.optimizer)
"""

STOPPED = """
for name, optimizer in OPTIMIZERS.items():
    model, table = new_model(optimizer())
    train(model, 0, 8)
    finish(f"{name}_uninterrupted", model, table)

    model, table = new_model(optimizer())
    train(model, 0, 5)
    model.save_weights(f"{folder}/{name}/weights")
    checkpoint(model).write(f"{folder}/{name}/checkpoint")
"""

RESUMED = """
for name, optimizer in OPTIMIZERS.items():
    model, table = new_model(optimizer())
    model.load_weights(f"{folder}/{name}/weights").assert_existing_objects_matched()
    train(model, 5, 8)
    finish(f"{name}_weights", model, table)

    model, table = new_model(optimizer())
    train(model, 20, 22)  # what is restored replaces what was there
    checkpoint(model).read(f"{folder}/{name}/checkpoint").assert_consumed()
    train(model, 5, 8)
    finish(f"{name}_checkpoint", model, table)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("resume")
    run(COMMON + STOPPED, folder)
    run(COMMON + RESUMED, folder)
    return folder


@pytest.mark.parametrize("way", ["weights", "checkpoint"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_resumed_training_equals_uninterrupted(folder, name, way):
    resumed, expected = f"{name}_{way}", f"{name}_uninterrupted"
    assert_same_contents(
        load_contents(folder / f"{resumed}.npz"), load_contents(folder / f"{expected}.npz")
    )
    for weight, other in zip(
        load_contents(folder / f"{resumed}_dense.npz"),
        load_contents(folder / f"{expected}_dense.npz"),
        strict=True,
    ):
        np.testing.assert_array_equal(weight, other)
    iterations = load_contents(folder / f"{expected}_dense.npz")[2]
    assert iterations == 8


BACKUP = """
scaled = tf_keras.mixed_precision.LossScaleOptimizer
model, table = new_model(
    OPTIMIZERS["adam"](), lambda optimizer: scaled(optimizer, dynamic_growth_steps=9)
)
random = np.random.default_rng(0)
data = random.integers(-100, 100, [64, 4]), random.uniform(size=[64, 1])
backup = tf_keras.callbacks.BackupAndRestore(f"{folder}/backup")
stop = tf_keras.callbacks.LambdaCallback(
    on_epoch_begin=lambda epoch, logs: epoch == 3 and sys.argv[2] == "stop" and os._exit(0)
)
callbacks = [] if sys.argv[2] == "uninterrupted" else [backup, stop]
history = model.fit(*data, batch_size=16, epochs=5, shuffle=False, verbose=0, callbacks=callbacks)
assert len(history.epoch) == (2 if sys.argv[2] == "resume" else 5), history.epoch
finish(sys.argv[2], model, table)
assert model.optimizer.loss_scale == 2.0 ** (15 + 20 // 9)
"""


def test_backup_and_restore(tmp_path):
    for how in ("uninterrupted", "stop", "resume"):
        run(COMMON + BACKUP, tmp_path, how)
    assert not (tmp_path / "stop.npz").exists()
    for end in (".npz", "_dense.npz"):
        assert_same_contents(
            load_contents(tmp_path / f"resume{end}"),
            load_contents(tmp_path / f"uninterrupted{end}"),
        )
