"""FBGEMM on the CPU: SplitTableBatchedEmbeddingBagsCodegen with row-wise Adagrad.

The rows lie in host memory. Each id is a bag of its own, pooled by a sum: the same result as
without pooling, for which FBGEMM is slower here.
"""

from importlib import metadata

import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    ComputeDevice,
    EmbeddingLocation,
    PoolingMode,
    SplitTableBatchedEmbeddingBagsCodegen,
)

from benchmarks import workload
from benchmarks.systems.base import System


class FbgemmSystem(System):
    """Ids are row numbers: it needs no hashing."""

    row_wise = True

    def describe(self):
        return {
            "torch": torch.__version__,
            "fbgemm-gpu-cpu": metadata.version("fbgemm-gpu-cpu"),
            "threads": torch.get_num_threads(),
        }

    def _make(self):
        place = (EmbeddingLocation.HOST, ComputeDevice.CPU)
        self._bags = SplitTableBatchedEmbeddingBagsCodegen(
            [(self.vocabulary, self.dim, *place)],
            optimizer=EmbOptimType.EXACT_ROWWISE_ADAGRAD,
            learning_rate=workload.LEARNING_RATE,
            eps=workload.EPSILON,
            pooling_mode=PoolingMode.SUM,
        )
        self._rows = self._bags.split_embedding_weights()[0]

    def _fill(self, index):
        self._rows[index[0] : index[-1] + 1] = torch.from_numpy(workload.rows_of(index, self.dim))

    def compile(self):
        gradient = workload.gradients(self.batch, self.dim).reshape(-1, self.dim)
        self._gradient = torch.from_numpy(gradient)

    def _read(self, index):
        return self._rows[index].numpy()

    def _prepare(self, index):
        ids = torch.from_numpy(index.ravel())
        return ids, torch.arange(len(ids) + 1)

    def _lookup(self, batch):
        with torch.no_grad():
            self._bags(*batch)

    def _train_lookup(self, batch):
        self._bags(*batch)

    def _update(self, batch):
        self._bags(*batch).backward(self._gradient)

    def reset(self):
        self.__dict__.clear()


SYSTEM = FbgemmSystem
