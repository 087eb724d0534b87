"""Where rows are kept never changes results: budgets and threads, bit for bit."""

import itertools
from concurrent import futures

import numpy as np
import pytest
from fresh import assert_same_contents, load_contents, run
from twins import OPTIMIZERS

ROWS, BATCH = 4000, 256  # rows in all; the ids of a batch are twice as many
BUDGETS = {"everything": "64MiB", "a tenth": "24KiB", "less than a batch": "1KiB"}
THREADS = (1, 2)
PLACEMENTS = list(itertools.product(BUDGETS, THREADS))

TRAINING = """
from fresh import save_contents
from twins import OPTIMIZERS, small_model

folder, budget, threads, rows, batch = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
tf.config.threading.set_intra_op_parallelism_threads(threads)
for name, optimizer in OPTIMIZERS.items():
    tf_keras.utils.set_random_seed(1)
    with tf_hps.Store(dram_bytes=budget) as store:
        layer = tf_hps.HPSEmbedding(None, 8, store=store, name="user")
        model = small_model(layer, length=2)
        model.compile(tf_hps.HPSOptimizer(optimizer()), "mse")
        random = np.random.default_rng(0)
        for step in range(16):
            # Skewed, as ids are: some are hot, most come once in a while.
            ids = (rows * random.power(0.5, [batch, 2])).astype(np.int64) * 7919 - 5
            model.train_on_batch(ids, random.uniform(size=[batch, 1]))
            if step % 8 == 7:
                model.predict(ids + 1, verbose=0)
        save_contents(f"{folder}/{name}.npz", layer.table)
        stats = store.stats()["tables"][layer.table.name]
        print(name, stats["dram"]["evictions"], stats["ssd"]["hits"], layer.table.size())
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Folder of the results, and what was printed, of each placement."""
    results = {}

    def train(placement):
        budget, threads = placement
        folder = tmp_path_factory.mktemp("placement")
        printed = run(TRAINING, folder, BUDGETS[budget], threads, ROWS, BATCH)
        lines = [line.split() for line in printed.splitlines()]
        results[placement] = folder, {name: list(map(int, numbers)) for name, *numbers in lines}

    with futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(train, PLACEMENTS))
    return results


@pytest.mark.parametrize("budget, threads", PLACEMENTS[1:])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_rows_and_state_are_the_same_bits(trained, name, budget, threads):
    folder, _ = trained[budget, threads]
    expected_folder, _ = trained[PLACEMENTS[0]]
    assert_same_contents(
        load_contents(folder / f"{name}.npz"), load_contents(expected_folder / f"{name}.npz")
    )


@pytest.mark.parametrize("budget, threads", PLACEMENTS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_rows_were_where_the_budget_puts_them(trained, name, budget, threads):
    evictions, ssd_hits, rows = trained[budget, threads][1][name]
    assert rows > 3 * BATCH
    if budget == "everything":
        # The rows of the first batch are there before the table knows its optimizer and its state.
        assert evictions == 0 and ssd_hits <= 2 * BATCH
    else:
        assert evictions > rows and ssd_hits > rows / 2


def test_training_moved_the_rows(trained):
    folder, _ = trained[PLACEMENTS[0]]
    values = [load_contents(folder / f"{name}.npz")[1] for name in OPTIMIZERS]
    for one, other in itertools.pairwise(values):
        assert np.mean(one != other) > 0.9
