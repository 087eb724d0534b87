"""Imported before TensorFlow: keeps what it logs out of the output of `tf-hps`."""

import os
import sys


def _mute():
    """Sends what C++ code writes to stderr nowhere; Python's goes on to where it did."""
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, errors="backslashreplace")
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    os.close(null)


if os.path.basename(sys.argv[0] if sys.argv else "") in ("-m", "tf-hps"):  # -m: python -m tf_hps
    _mute()
