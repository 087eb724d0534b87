r"""Trains DeepFM on MovieLens-100K twice: with dense embeddings, and with tiered tables.

Both models start from the same weights and see the same batches. The dense one holds all rows of
its embeddings in memory; the tiered one keeps about a tenth of them in DRAM and leaves the others
on SSD. That changes where rows are, not what is learned: the example checks that the losses of the
steps and the test AUC agree, and fails if they do not.

    python examples/train_ctr.py
    python examples/serve.py     # a fresh process loads the exported model and recommends films
"""

from __future__ import annotations

import json
import pathlib
import shutil
import sys

import deepfm
import numpy as np
import report
import tf_keras
from absl import app, flags, logging
from movielens import MULTI_VALUED, MovieLens, Ratings, load_or_exit
from training import Examples, train
from vocabulary import Vocabulary

import tf_hps

OUTPUT = pathlib.Path(__file__).resolve().parent / "output"
FLAGS = flags.FLAGS
flags.DEFINE_string("data_dir", None, "Folder of the data set; default: inside `recbole`.")
flags.DEFINE_string("output_dir", str(OUTPUT), "Gets the curves, the figures and the SavedModel.")
flags.DEFINE_enum(
    "split",
    "user",
    ["user", "date"],
    "Tests on each user's last fifth of ratings, or on the last fifth of all ratings.",
)
flags.DEFINE_string("dram_budget", None, 'As in "2MiB"; default: what a tenth of the rows takes.')
flags.DEFINE_integer("max_ratings", None, "Use only the first so many ratings.", lower_bound=100)
flags.DEFINE_integer("epochs", 4, "Times to go through the training data.", lower_bound=1)
flags.DEFINE_integer("batch_size", 256, "Examples in a step.", lower_bound=1)
flags.DEFINE_integer("dim", 8, "Length of an embedding vector.", lower_bound=2)
flags.DEFINE_float("learning_rate", 0.2, "Of Adagrad.", lower_bound=0)
flags.DEFINE_integer("seed", 1, "Of the initial weights and of the order of examples.")

SAMPLE_USERS = (1, 42, 405)  # whose scores are kept for serve.py to compare with its own
SAMPLE_HOUR = 20


def dense_embedding(vocabulary: Vocabulary) -> deepfm.Embed:
    """Embeds fields with tf_keras, which takes keys as the vocabulary numbers them."""

    def embed(field, ids, dim):
        many = field in MULTI_VALUED
        rows = tf_keras.layers.Embedding(
            vocabulary.size(field), dim, mask_zero=many, name=f"{field}_{dim}"
        )(ids)
        return tf_keras.layers.GlobalAveragePooling1D()(rows) if many else rows

    return embed


def tiered_embedding(store: tf_hps.Store) -> deepfm.Embed:
    """Embeds fields with tiered tables, which take any key."""

    def embed(field, ids, dim):
        many = field in MULTI_VALUED
        return tf_hps.HPSEmbedding(
            None,
            dim,
            embeddings_initializer="zeros" if dim == 1 else "uniform",
            mask_zero=many,
            combiner="mean" if many else None,
            store=store,
            seed=FLAGS.seed,
            name=f"{field}_{dim}",
        )(ids)

    return embed


def copy_weights(tiered: tf_keras.Model, dense: tf_keras.Model, vocabulary: Vocabulary) -> None:
    """Gives the dense model the initial rows and the other weights of the tiered one."""
    for layer in tiered.layers:
        if isinstance(layer, tf_hps.HPSEmbedding):
            keys = vocabulary.keys(layer.name.rsplit("_", 1)[0])
            dense.get_layer(layer.name).set_weights([layer.table.lookup(keys).numpy()])
        elif layer.weights:
            dense.get_layer(layer.name).set_weights(layer.get_weights())


def build_models(
    vocabulary: Vocabulary, store: tf_hps.Store
) -> tuple[tf_keras.Model, tf_keras.Model]:
    """The dense and the tiered model with equal weights, compiled."""
    dense = deepfm.build(dense_embedding(vocabulary), FLAGS.dim)
    tiered = deepfm.build(tiered_embedding(store), FLAGS.dim)
    copy_weights(tiered, dense, vocabulary)
    optimizer = tf_keras.optimizers.Adagrad(FLAGS.learning_rate)
    dense.compile(optimizer, "binary_crossentropy")
    optimizer = tf_hps.HPSOptimizer(tf_keras.optimizers.Adagrad(FLAGS.learning_rate))
    tiered.compile(optimizer, "binary_crossentropy")
    return dense, tiered


def load_examples(data: MovieLens) -> tuple[Examples, Examples]:
    """The examples to train on and those to test on, as the tiered model takes them."""

    def examples(ratings: Ratings) -> Examples:
        return Examples(data.features(ratings.user, ratings.item, ratings.hour), ratings.click)

    ratings = data.ratings[: FLAGS.max_ratings]
    earlier, later = ratings.split_by_user() if FLAGS.split == "user" else ratings.split_by_date()
    new = ~np.isin(later.user, earlier.user)
    print(
        f"MovieLens-100K: {len(earlier):,} ratings to train on and {len(later):,} later ones to"
        f" test on, {new.mean():.0%} of these by new users"
    )
    return examples(earlier), examples(later)


def open_store(train_set: Examples) -> tf_hps.Store:
    """A temporary store with DRAM for a tenth of the rows, or of --dram_budget."""
    keys = sum(len(np.unique(keys)) for keys in train_set.features.values())
    keys -= len(MULTI_VALUED)  # padding has no row
    row_bytes = [24 + 2 * 4 * dim + 8 for dim in (FLAGS.dim, 1)]  # header, Adagrad's row, index
    size = keys * sum(row_bytes)
    budget = FLAGS.dram_budget or size // 10
    print(
        f"DeepFM over {len(train_set.features)} fields with {keys:,} keys, two embeddings for each"
        f" (dim {FLAGS.dim} and 1): {2 * keys:,} rows, {size:,} bytes with Adagrad's state"
    )
    print("DRAM budget of the tiered model:", FLAGS.dram_budget or f"{budget:,} bytes")
    return tf_hps.Store(dram_bytes=budget)


def export(model: tf_keras.Model, data: MovieLens, output: pathlib.Path) -> None:
    """Writes a SavedModel, and some users' scores for `serve.py` to compare with its own."""
    shutil.rmtree(output / "saved_model", ignore_errors=True)
    model.save(output / "saved_model", save_format="tf")
    scores = {}
    for user in SAMPLE_USERS:
        items, features = data.catalogue(user, SAMPLE_HOUR)
        scores[f"{user}_{SAMPLE_HOUR}"] = model.predict(features, batch_size=len(items), verbose=0)[
            :, 0
        ]
    np.savez(output / "sample_scores.npz", **scores)


def main(argv: list[str]) -> None:
    """Trains, compares, draws, exports; exits with an error if the models differ."""
    del argv
    logging.set_verbosity(logging.WARNING)
    output = pathlib.Path(FLAGS.output_dir)
    output.mkdir(parents=True, exist_ok=True)
    tf_keras.utils.set_random_seed(FLAGS.seed)
    data = load_or_exit(FLAGS.data_dir)
    train_set, test_set = load_examples(data)
    vocabulary = Vocabulary(train_set.features, test_set.features)
    store = open_store(train_set)
    dense, tiered = build_models(vocabulary, store)

    settings = {"epochs": FLAGS.epochs, "batch_size": FLAGS.batch_size, "seed": FLAGS.seed}
    print("\nTraining with tf_keras.layers.Embedding")
    encoded = [examples.map(vocabulary.encode) for examples in (train_set, test_set)]
    dense_history = train(dense, *encoded, **settings)
    print("\nTraining with tf_hps.HPSEmbedding")
    tiered_history = train(tiered, train_set, test_set, store=store, **settings)

    figures = report.compare(dense_history, tiered_history, FLAGS.epochs, store)
    print(report.summary(figures, store))
    report.draw_curves(dense_history, tiered_history, output / "curves.png")
    export(tiered, data, output)
    (output / "figures.json").write_text(json.dumps(figures, indent=2))
    print(f"\nWritten to {output}: curves.png, figures.json, saved_model/")
    if wrong := report.failures(figures):
        sys.exit("The example failed: " + "; ".join(wrong))


if __name__ == "__main__":
    app.run(main)
