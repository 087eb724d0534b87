"""The limit: a prefetched gather from a dense array, in plain C++ (gather_limit.cc)."""

import ctypes
import os

import numpy as np

from benchmarks.systems.base import System
from benchmarks.worker import BUILD
from benchmarks.workload import rows_of

_LIBRARY = BUILD / "release" / "libtf_hps_gather_limit.so"
_PAGE = 4096


def _aligned(shape):
    """An array of float32 that begins on a page."""
    size = int(np.prod(shape))
    raw = np.empty(size + _PAGE // 4, np.float32)
    begin = -raw.ctypes.data % _PAGE // 4
    return raw[begin : begin + size].reshape(shape)


def _pointer(array):
    return ctypes.c_void_p(array.ctypes.data)


class GatherSystem(System):
    """Rows at row numbers, gathered by as many threads as there are cores."""

    def __init__(self):
        self._library = ctypes.CDLL(str(_LIBRARY))
        self._threads = len(os.sched_getaffinity(0))

    def describe(self):
        return {"threads": self._threads}

    def _make(self):
        self._rows = _aligned([self.vocabulary, self.dim])
        self._out = _aligned([self.batch * len(self._index[0][0]), self.dim])

    def _fill(self, index):
        self._rows[index] = rows_of(index, self.dim)

    def compile(self):
        self._indices = np.ascontiguousarray(self._index.reshape(len(self._index), -1))

    def _read(self, index):
        self._gather(index[None], 1)
        return self._out[: len(index)]

    def _prepare(self, index):
        return None

    def _gather(self, indices, count):
        seconds = np.empty(count)
        self._library.GatherSeconds(
            _pointer(self._rows),
            ctypes.c_int64(self.dim),
            _pointer(indices),
            ctypes.c_int64(len(indices)),
            ctypes.c_int64(indices.shape[1]),
            ctypes.c_int64(self._threads),
            _pointer(self._out),
            ctypes.c_int64(count),
            _pointer(seconds),
        )
        return seconds.tolist()

    def measure(self, operation, count):
        assert operation == "lookup", operation
        return self._gather(self._indices, count)

    def copy_bandwidth(self):
        """Bytes per second that a copy reads and writes, in memory larger than caches."""
        function = self._library.CopyBandwidth
        function.restype = ctypes.c_double
        return function(ctypes.c_int64(1 << 30), ctypes.c_int64(self._threads))


SYSTEM = GatherSystem
