"""What every system is given: the same ids, rows, batches and gradients, from fixed seeds.

Only NumPy is used here: peers import this module from environments of their own.
"""

import numpy as np

FEATURES = 26
EXPONENT = 1.05  # of the Zipf distribution of ids
SEED = 20
LEARNING_RATE = 0.1
EPSILON = 1e-7


def key_of(index):
    """Scatters row numbers over the int64 range: a bijection (SplitMix64's finalizer)."""
    x = np.asarray(index).astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (x ^ (x >> np.uint64(31))).view(np.int64)


def index_of(rank, vocabulary):
    """Where the id of that popularity lies in a dense array: hot rows are not neighbours."""
    return (np.asarray(rank, np.int64) * 1_000_000_007 + 12_345) % vocabulary


def rows_of(index, dim):
    """The row that each id starts with: float32 [n, dim] in [-0.05, 0.05)."""
    cell = np.asarray(index, np.uint32)[:, None] * np.uint32(2654435761)
    cell = (cell ^ (cell >> np.uint32(15))) + np.arange(dim, dtype=np.uint32) * np.uint32(40503)
    cell = (cell * np.uint32(2246822519)) >> np.uint32(8)
    return (cell.astype(np.float32) / np.float32(2**24) - np.float32(0.5)) * np.float32(0.1)


def chunks(vocabulary, size=250_000):
    """Splits all row numbers into arrays of at most `size`."""
    for begin in range(0, vocabulary, size):
        yield np.arange(begin, min(begin + size, vocabulary))


class Popularity:
    """Draws ids by the Zipf distribution.

    Args:
      vocabulary: the number of ids.
    """

    def __init__(self, vocabulary):
        self.vocabulary = vocabulary
        weights = np.arange(1, vocabulary + 1, dtype=np.float64) ** -EXPONENT
        self.probabilities = weights / weights.sum()
        self._cumulative = np.cumsum(self.probabilities)

    def batches(self, count, batch, seed=SEED):
        """Row numbers of `count` batches, int64 [count, batch, FEATURES]."""
        uniform = np.random.default_rng(seed).random([count, batch, FEATURES])
        ranks = np.searchsorted(self._cumulative, uniform)
        return index_of(np.minimum(ranks, self.vocabulary - 1), self.vocabulary)

    def misses(self, resident, draws):
        """Distinct ids expected among `draws` that are not among the `resident` hottest."""
        return float(-np.expm1(draws * np.log1p(-self.probabilities[resident:])).sum())

    def resident_for(self, misses, draws):
        """How many of the hottest ids to hold so that `misses` are expected."""
        expected = -np.expm1(draws * np.log1p(-self.probabilities))
        above = np.cumsum(expected[::-1])[::-1]  # of the ids from each rank on
        return int(np.searchsorted(-above, -misses))


def column_batches(vocabulary, count, batch):
    """Batches in which each feature has ids of its own, a 26th of the vocabulary."""
    part = vocabulary // FEATURES
    return Popularity(part).batches(count, batch) + np.arange(FEATURES) * part


def gradients(batch, dim):
    """The gradient of a batch's rows, float32 [batch, FEATURES, dim]."""
    random = np.random.default_rng(SEED + 1)
    return random.normal(0, 0.01, [batch, FEATURES, dim]).astype(np.float32)


def labels(index):
    """Something that depends on the ids, so that `fit` has something to learn: [batch, 1]."""
    return (key_of(index[:, :1]) & 1).astype(np.float32)


def dense_weights(inputs, units=64):
    """Weights of the two dense layers of the model that `fit` trains."""
    random = np.random.default_rng(SEED + 2)
    return [
        random.normal(0, inputs**-0.5, [inputs, units]).astype(np.float32),
        np.zeros(units, np.float32),
        random.normal(0, units**-0.5, [units, 1]).astype(np.float32),
        np.zeros(1, np.float32),
    ]


def adagrad_oracle(batches, gradient, dim, row_wise):
    """Rows after a step of Adagrad for each of `batches`, from an accumulator of 0.

    Args:
      batches: row numbers, a sequence of [batch, FEATURES].
      gradient: of each batch's rows, [batch, FEATURES, dim].
      row_wise: one accumulator for each row, of the mean square, as FBGEMM has it.

    Returns:
      Row numbers [n] and rows [n, dim].
    """
    index = np.unique(np.stack(batches))
    rows = rows_of(index, dim).astype(np.float64)
    accumulators = np.zeros_like(rows)
    for batch in batches:
        used, place = np.unique(batch, return_inverse=True)
        sums = np.zeros([len(used), dim])
        np.add.at(sums, place.ravel(), gradient.reshape(-1, dim))
        at = np.searchsorted(index, used)
        squares = sums**2
        accumulators[at] += squares.mean(axis=1, keepdims=True) if row_wise else squares
        if row_wise:
            rows[at] -= LEARNING_RATE * sums / (np.sqrt(accumulators[at]) + EPSILON)
        else:
            rows[at] -= LEARNING_RATE * sums / np.sqrt(accumulators[at] + EPSILON)
    return index, rows
