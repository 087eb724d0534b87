"""MovieLens-100K as features for a click model.

The ratings come with the `recbole` package, whose wheel holds the data set. Its files are only
read: recbole itself, which needs many more packages, is never imported.

Every feature is an int64 key. Numbers stay as they are; text is hashed, and so are crosses of two
features. There is no vocabulary and no upper bound: this is how large click models name their
features, and what a tiered table takes as it is.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import pathlib
import re
import sys

import numpy as np

# Field -> int64 keys: [n], or [n, GENRES_PER_ITEM] for a multi-valued field.
Features = dict[str, np.ndarray]

GENRES_PER_ITEM = 6  # the most genres that one film has; shorter lists are padded with key 0
PLAIN = ("user", "item", "age", "gender", "occupation", "zip", "year", "hour", "item_x_occupation")
MULTI_VALUED = ("genres", "user_x_genres", "occupation_x_genres")
FIELDS = PLAIN + MULTI_VALUED

_MISSING = """\
MovieLens-100K was not found. This example reads it from the `recbole` package, which is not
installed. Install it without its dependencies (only its data files are used):

    pip install --no-deps recbole

or name the folder that holds ml-100k.inter, ml-100k.user and ml-100k.item with --data_dir."""


@dataclasses.dataclass(frozen=True)
class Ratings:
    """Ratings in order of time; each array is [n]."""

    user: np.ndarray
    item: np.ndarray
    click: np.ndarray  # float32: 1 where the rating is at least 4, else 0
    time: np.ndarray  # seconds since 1970

    def __len__(self) -> int:
        return len(self.user)

    def __getitem__(self, rows: slice | np.ndarray) -> Ratings:
        return Ratings(self.user[rows], self.item[rows], self.click[rows], self.time[rows])

    @property
    def hour(self) -> np.ndarray:
        """Hour of the day (UTC), 0 to 23."""
        return self.time // 3600 % 24

    def split_by_user(self, train_fraction: float = 0.8) -> tuple[Ratings, Ratings]:
        """Each user's earlier ratings, to train on, and later ones, to test on."""
        by_user = np.argsort(self.user, kind="stable")
        first = np.searchsorted(self.user[by_user], self.user[by_user])
        count = np.bincount(self.user)[self.user[by_user]]
        later = np.empty(len(self), bool)
        later[by_user] = np.arange(len(self)) - first >= train_fraction * count
        return self[~later], self[later]

    def split_by_date(self, train_fraction: float = 0.8) -> tuple[Ratings, Ratings]:
        """The ratings before a date, to train on, and those after it, to test on."""
        cut = int(len(self) * train_fraction)
        return self[:cut], self[cut:]


def find_data() -> pathlib.Path:
    """The folder of the data set inside the installed `recbole` package.

    Raises:
      FileNotFoundError: recbole is not installed; the message says what to do.
    """
    spec = importlib.util.find_spec("recbole")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        folder = pathlib.Path(place) / "dataset_example" / "ml-100k"
        if (folder / "ml-100k.inter").is_file():
            return folder
    raise FileNotFoundError(_MISSING)


def text_key(text: str) -> int:
    """A 64-bit hash of a text, the same in every process. Never 0, which stands for padding."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True) or 1


def cross(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Hashes pairs of keys to one key each. Padding, 0, in `right` stays padding."""
    x = left.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + right.astype(np.uint64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)  # splitmix64's finalizer
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.where(right == 0, 0, (x ^ (x >> np.uint64(31))).astype(np.int64))


class MovieLens:
    """The ratings, and what is known of each user and film.

    Args:
      folder: where the data set's files are; `None`: inside the `recbole` package.
    """

    def __init__(self, folder: str | None = None):
        place = pathlib.Path(folder) if folder else find_data()
        films = _read(place / "ml-100k.item")
        self.ratings = _ratings(_read(place / "ml-100k.inter"))
        self.titles = {int(film[0]): _readable(film[1]) for film in films}  # of each item
        self._of_user = _user_features(_read(place / "ml-100k.user"))
        self._of_item = _item_features(films)

    def features(self, user: np.ndarray, item: np.ndarray, hour: np.ndarray) -> Features:
        """The keys of every field, for n films shown to users.

        Args:
          user, item, hour: [n] int64: who, which film, and the hour of the day.

        Returns:
          A dict of one int64 array per field: [n] for those in `PLAIN`, [n, GENRES_PER_ITEM] for
          those in `MULTI_VALUED`.
        """
        keys = {"user": user, "item": item, "hour": hour}
        keys |= {field: values[user] for field, values in self._of_user.items()}
        keys |= {field: values[item] for field, values in self._of_item.items()}
        keys["item_x_occupation"] = cross(item, keys["occupation"])
        keys["user_x_genres"] = cross(user[:, np.newaxis], keys["genres"])
        keys["occupation_x_genres"] = cross(keys["occupation"][:, np.newaxis], keys["genres"])
        return {field: keys[field] for field in FIELDS}

    def catalogue(self, user: int, hour: int) -> tuple[np.ndarray, Features]:
        """All films, [n] item ids, and the features of showing each of them to one user.

        Raises:
          ValueError: there is no such user.
        """
        if not 0 < user < len(self._of_user["age"]):
            raise ValueError(f"Users are numbered 1 to {len(self._of_user['age']) - 1}, not {user}")
        items = np.array(sorted(self.titles))
        return items, self.features(np.full_like(items, user), items, np.full_like(items, hour))


def load_or_exit(folder: str | None) -> MovieLens:
    """The data set; without it, ends the program with a message that says what to do."""
    try:
        return MovieLens(folder)
    except FileNotFoundError as error:
        sys.exit(str(error))


def _readable(title: str) -> str:
    """Puts a title's article in front: "Third Man, The" is The Third Man."""
    return re.sub(r"^(.*), (The|A|An)$", r"\2 \1", title)


def _read(path: pathlib.Path) -> list[list[str]]:
    """The rows of a tab-separated file, without its header."""
    return [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()[1:]]


def _ratings(rows: list[list[str]]) -> Ratings:
    user, item, rating, time = np.array(rows, np.float64).astype(np.int64).T
    order = np.lexsort((item, user, time))
    click = (rating >= 4).astype(np.float32)
    return Ratings(user[order], item[order], click[order], time[order])


def _user_features(rows: list[list[str]]) -> Features:
    """Arrays indexed by user id, which starts at 1."""
    fields = ("age", "gender", "occupation", "zip")
    keys = {field: np.zeros(len(rows) + 1, np.int64) for field in fields}
    for user, age, *texts in rows:
        keys["age"][int(user)] = int(age)
        for field, text in zip(fields[1:], texts, strict=True):
            keys[field][int(user)] = text_key(text)
    return keys


def _item_features(rows: list[list[str]]) -> Features:
    """Arrays indexed by item id, which starts at 1."""
    year = np.zeros(len(rows) + 1, np.int64)
    genres = np.zeros((len(rows) + 1, GENRES_PER_ITEM), np.int64)
    for item, _, released, names in rows:
        year[int(item)] = int(released) if released.isdigit() else text_key("unknown")
        keys = [text_key(name) for name in names.split()]
        genres[int(item), : len(keys)] = keys
    return {"year": year, "genres": genres}
