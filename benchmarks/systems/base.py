"""What the systems have in common."""

import itertools
import time

import numpy as np

from benchmarks import workload


def resident_bytes():
    """Memory of this process."""
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


class System:
    """A system under test. Methods without an underscore are called by the parent.

    Subclasses implement `_make`, `_fill`, `compile`, `_read`, `_prepare` and the operations
    that they have, functions of what `_prepare` made of a batch: `_lookup`, `_train_lookup`,
    `_update`.
    """

    row_wise = False  # one Adagrad accumulator for each row

    def describe(self):
        """Returns versions by package, and the number of threads."""
        raise NotImplementedError

    def setup(self, vocabulary, dim, batch, batches, check=True, **options):
        """Makes the table, fills it, and checks what is in it. Returns facts about it."""
        self.vocabulary, self.dim, self.batch = vocabulary, dim, batch
        if options.pop("columns", False):
            self._index = workload.column_batches(vocabulary, batches, batch)
        else:
            self._index = workload.Popularity(vocabulary).batches(batches, batch)
        before = resident_bytes()
        start = time.perf_counter()
        self._make(**options)
        for index in workload.chunks(vocabulary):
            self._fill(index)
        seconds = time.perf_counter() - start
        grown = resident_bytes() - before
        self.compile()
        self._batches = [self._prepare(index) for index in self._index]
        self._cycle = itertools.cycle(self._batches)
        if check:
            self._check_lookup()
        return {"fill_seconds": seconds, "resident_bytes": grown}

    def _check_lookup(self):
        index = self._index[0].ravel()
        got = self._read(index).reshape(-1, self.dim)
        np.testing.assert_array_equal(got, workload.rows_of(index, self.dim))

    def check_update(self):
        """Compares rows after steps of Adagrad with NumPy's. Returns the largest difference."""
        gradient = workload.gradients(self.batch, self.dim)
        index, expected = workload.adagrad_oracle(
            self._index[:3], gradient, self.dim, self.row_wise
        )
        for batch in self._batches[:3]:
            self._update(batch)
        got = self._read(index).reshape(-1, self.dim)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=2e-5)
        return float(np.abs(got - expected).max())

    def measure(self, operation, count):
        """Runs an operation `count` times, each time with another batch. Returns seconds."""
        step = getattr(self, f"_{operation}")
        seconds = []
        for batch in itertools.islice(self._cycle, count):
            start = time.perf_counter()
            step(batch)
            seconds.append(time.perf_counter() - start)
        return seconds

    def facts(self):
        """What else there is to say after measuring."""
        return {}

    def compile(self):
        """Makes the operations, of the filled table."""

    def reset(self):
        """Frees what `setup` made; does nothing a second time."""

    def _make(self, **options):
        raise NotImplementedError

    def _fill(self, index):
        raise NotImplementedError

    def _read(self, index):
        raise NotImplementedError

    def _prepare(self, index):
        raise NotImplementedError
