"""What a table will take, before there is one."""

import dataclasses

import tf_keras

from tf_hps import _ops
from tf_hps._bytes import parse_bytes
from tf_hps._inputs import positive_int
from tf_hps.store import eager
from tf_hps.update_rules import checked_optimizer, rule_of


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Bytes of a table on each tier.

    Attributes:
      rows, dim: of the table.
      optimizer: canonical spec of the optimizer, a string; "" for none.
      dram_bytes_per_row: of the budget: the row, its optimizer state, its share of the index.
      ssd_bytes_per_row: in files that hold nothing else. Training rewrites rows, so that files
        take more until LevelDB compacts them.
      dram_rows: how many of the rows the budget holds, an int.
      dram_bytes: what these take of it, an int.
      ssd_bytes: what all rows take, an int.
      overhead_bytes: memory besides the budget, an int: LevelDB's write buffers,
        indexes and bloom filters.
    """

    rows: int
    dim: int
    optimizer: str
    dram_bytes_per_row: float
    ssd_bytes_per_row: float
    dram_rows: int
    dram_bytes: int
    ssd_bytes: int
    overhead_bytes: int


def estimate(rows, dim, optimizer="adagrad", dram_bytes=None):
    """Returns what a table takes on each tier, within 15 %.

    >>> e = tf_hps.estimate(100_000_000, 16, "adam", dram_bytes="8GiB")
    >>> e.dram_bytes_per_row
    223.8...
    >>> round(e.dram_rows / e.rows, 2), round(e.ssd_bytes / 2**30)
    (0.38, 21)

    Args:
      rows: int, how many keys have a row.
      dim: length of a row, an int from 1.
      optimizer: "sgd", "momentum", "adagrad", "adam" or "amsgrad", a tf_keras optimizer, or None
        for rows that are not trained.
      dram_bytes: the store's budget, as for `Store`. None: as much as all rows take.

    Returns:
      An `Estimate`.

    Raises:
      ValueError: if an argument cannot be used.
    """
    spec = _spec(optimizer)
    rows = 0 if rows == 0 else positive_int(rows, "rows")
    dim = positive_int(dim, "dim")
    budget = -1 if dram_bytes is None else parse_bytes(dram_bytes, "dram_bytes")
    with eager(), _ops.readable_errors():
        per_dram, per_ssd, *totals = _ops.ops.tf_hps_estimate(
            rows=rows, dim=dim, optimizer=spec, dram_bytes=budget
        ).numpy()
    return Estimate(rows, dim, spec, float(per_dram), float(per_ssd), *(int(x) for x in totals))


def _spec(optimizer):
    """Returns the engine's name of an optimizer."""
    if optimizer is None or optimizer == "":
        return ""
    if isinstance(optimizer, str) and "(" in optimizer:
        return optimizer  # canonical already
    if optimizer == "momentum":
        optimizer = tf_keras.optimizers.SGD(momentum=0.9)
    elif optimizer == "amsgrad":
        optimizer = tf_keras.optimizers.Adam(amsgrad=True)
    return rule_of(checked_optimizer(getattr(optimizer, "inner", optimizer)))[0]
