"""Imported before TensorFlow: keeps what it logs out of the output of `tf-hps`."""

import os
import sys


def _mute():
    """Sends what C++ code writes to stderr nowhere; Python's goes on to where it did."""
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, errors="backslashreplace")
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    os.close(null)


def _is_command():
    """Whether this process is `tf-hps` or `python -m tf_hps`, which has no argv[0] yet."""
    if sys.argv[:1] == ["-m"]:
        return sys.orig_argv[-len(sys.argv) :][0] == "tf_hps"
    return bool(sys.argv) and os.path.basename(sys.argv[0]) == "tf-hps"


if _is_command():
    _mute()
