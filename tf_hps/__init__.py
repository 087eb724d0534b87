"""Embedding tables far larger than memory, for TensorFlow and tf_keras.

Hot rows in host memory, all rows on SSD: `HPSEmbedding` takes the place of
`tf_keras.layers.Embedding`, and `HPSOptimizer` wraps a tf_keras optimizer.
"""

import tf_hps._startup  # noqa: F401, I001  before TensorFlow
from tf_hps import _ops, checkpoint, gradients  # noqa: F401  they register ops, gradients, savers
from tf_hps._estimate import Estimate, estimate
from tf_hps._version import __version__
from tf_hps.embedding import HPSEmbedding
from tf_hps.metrics import TierMetrics
from tf_hps.optimizer import HPSOptimizer
from tf_hps.prefetching import prefetch
from tf_hps.store import Store, default_store, set_default_store
from tf_hps.table import Table
from tf_hps.tiering import make_tiered

__all__ = [
    "Estimate",
    "HPSEmbedding",
    "HPSOptimizer",
    "Store",
    "Table",
    "TierMetrics",
    "__version__",
    "default_store",
    "estimate",
    "make_tiered",
    "prefetch",
    "set_default_store",
]
