"""What dense embeddings need and tiered tables do not: a numbering of all keys."""

from __future__ import annotations

import numpy as np
from movielens import MULTI_VALUED, Features


class Vocabulary:
    """Numbers the distinct keys of each field from 0; padding, key 0, comes first.

    Args:
      *sets: every key that will ever occur, those of the test set too.
    """

    def __init__(self, *sets: Features):
        self._sorted = {
            field: np.unique(np.concatenate([features[field] for features in sets]))
            for field in sets[0]
        }

    def keys(self, field: str) -> np.ndarray:
        """The field's keys, in the order of their numbers."""
        keys = self._sorted[field]
        return np.concatenate([[0], keys[keys != 0]]) if field in MULTI_VALUED else keys

    def size(self, field: str) -> int:
        """How many keys the field has."""
        return len(self.keys(field))

    def encode(self, features: Features) -> Features:
        """Replaces keys by their numbers."""
        encoded = {}
        for field, keys in features.items():
            number = np.empty(len(self._sorted[field]), np.int64)  # by place in sorted order
            number[np.searchsorted(self._sorted[field], self.keys(field))] = np.arange(len(number))
            encoded[field] = number[np.searchsorted(self._sorted[field], keys)]
        return encoded
