"""Budgets in bytes, as users write them."""

import numbers
import re

_UNITS = {
    "B": 1,
    "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40,
}  # fmt: skip
_PATTERN = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-zA-Z]*)\s*")
_MOST = 2**63 - 1


def parse_bytes(value, name):
    """Returns the number of bytes that `value` stands for.

    >>> parse_bytes("1.5GiB", "dram_bytes")
    1610612736
    >>> parse_bytes("512 MB", "dram_bytes")
    512000000
    >>> parse_bytes("12 parsecs", "dram_bytes")
    Traceback (most recent call last):
    ...
    ValueError: dram_bytes: expected a number of bytes, as an int (2147483648) or a string ...

    Args:
      value: an int, or a string of a number and a unit: B, KB, MB, GB, TB (powers
        of 1000) or KiB, MiB, GiB, TiB (powers of 1024), in any case. No unit: bytes.
      name: what the budget is called, for the error.

    Returns:
      An int from 0 to 2**63 - 1.

    Raises:
      ValueError: if `value` is none of that.
    """
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        size = int(value)
    else:
        size = _parse_text(value) if isinstance(value, str) else None
    if size is None or not 0 <= size <= _MOST:
        raise ValueError(
            f"{name}: expected a number of bytes, as an int (2147483648) or a string "
            f'("512MB", "8GiB", "1.5GiB"), from 0 to {_MOST}. Received: {value!r}'
        )
    return size


def _parse_text(text):
    """Returns the bytes that `text` stands for, or None."""
    match = _PATTERN.fullmatch(text)
    unit = _UNITS.get(match[2].upper() or "B") if match else None
    if unit is None:
        return None
    if match[1].isdigit():  # exact, where a float would round
        return int(match[1]) * unit
    return int(float(match[1]) * unit)
