r"""Recommends films with the model that `train_ctr.py` exported, in a process of its own.

    python examples/serve.py --users=1,42,405

Nothing of the training program is needed but the folder of the SavedModel and `import tf_hps`,
which brings the ops that look rows up. (The data set is read for titles and for users' features.)
"""

from __future__ import annotations

import pathlib
import sys

import numpy as np
import tensorflow as tf
from absl import app, flags
from movielens import MovieLens, load_or_exit

import tf_hps  # noqa: F401  (registers the ops; without it TensorFlow cannot load the model)

OUTPUT = pathlib.Path(__file__).resolve().parent / "output"
FLAGS = flags.FLAGS
flags.DEFINE_string("data_dir", None, "Folder of the data set; default: inside `recbole`.")
flags.DEFINE_string("output_dir", str(OUTPUT), "What train_ctr.py was given.")
flags.DEFINE_list("users", ["1", "42", "405"], "Whom to recommend films to.")
flags.DEFINE_integer("hour", 20, "The hour of the day.", lower_bound=0, upper_bound=23)
flags.DEFINE_integer("films", 5, "How many films for each.", lower_bound=1)


def score(model: tf.Module, features: dict[str, np.ndarray]) -> np.ndarray:
    """Chances of a click, [n]."""
    tensors = {field: tf.constant(keys) for field, keys in features.items()}
    return model.signatures["serving_default"](**tensors)["click"].numpy()[:, 0]


def recommend(data: MovieLens, user: int, items: np.ndarray, scores: np.ndarray) -> str:
    """The films with the best scores that the user has not rated yet, as lines of text."""
    rated = data.ratings.item[data.ratings.user == user]
    fresh = np.flatnonzero(~np.isin(items, rated))
    best = fresh[np.argsort(-scores[fresh], kind="stable")][: FLAGS.films]
    lines = [f"{scores[i]:9.3f}  {data.titles[items[i]]}" for i in best]
    return "\n".join([f"User {user}, who rated {len(rated)} films:", *lines])


def check(output: pathlib.Path, user: int, scores: np.ndarray) -> None:
    """Exits with an error unless the training process had the same scores, bit for bit."""
    expected = np.load(output / "sample_scores.npz")
    if f"{user}_{FLAGS.hour}" not in expected:
        return
    if not np.array_equal(scores, expected[f"{user}_{FLAGS.hour}"]):
        sys.exit(f"The scores for user {user} are not those of the training process")
    print("(the scores of all films are those of the training process, bit for bit)")


def main(argv: list[str]) -> None:
    """Loads the model and prints recommendations."""
    del argv
    output = pathlib.Path(FLAGS.output_dir)
    if not (output / "saved_model").is_dir():
        sys.exit(f"There is no model in {output}: run train_ctr.py first")
    data = load_or_exit(FLAGS.data_dir)
    model = tf.saved_model.load(str(output / "saved_model"))
    for user in map(int, FLAGS.users):
        items, features = data.catalogue(user, FLAGS.hour)
        scores = score(model, features)
        print(recommend(data, user, items, scores))
        check(output, user, scores)


if __name__ == "__main__":
    app.run(main)
