"""Runs code in a fresh process, and compares what tables hold."""

import os
import subprocess
import sys
import textwrap

import numpy as np

import tf_hps

_HEADER = """
import os, sys
import numpy as np
import tensorflow as tf
import tf_keras
import tf_hps
"""


def start(code, *arguments, header=_HEADER, **kwargs):
    """Starts a Python process on `code`, which finds `arguments` in sys.argv[1:]."""
    packages = [os.path.dirname(os.path.dirname(tf_hps.__file__)), os.path.dirname(__file__)]
    path = os.pathsep.join([*packages, os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-c", header + textwrap.dedent(code), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **kwargs,
    )


def run(code, *arguments, **kwargs):
    """Runs `code` in a fresh process to its end, and returns what it printed."""
    process = start(code, *arguments, **kwargs)
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return output


def contents(table):
    """Returns all of a table as (keys, values, state), exported in several chunks."""
    chunks = list(table.export(chunk_rows=7, state=True))
    if not chunks:
        return [np.zeros(0, np.int64), *np.zeros([2, 0, table.dim], np.float32)]
    return [np.concatenate(column) for column in zip(*chunks, strict=True)]


def assert_same_contents(received, expected):
    """Compares two `contents` bit by bit; they must have rows."""
    assert len(expected[0]) > 0
    for received_column, expected_column in zip(received, expected, strict=True):
        np.testing.assert_array_equal(received_column, expected_column)


def save_contents(path, table):
    """Writes `contents` where another process finds them."""
    np.savez(path, *contents(table))


def load_contents(path):
    """Reads what `save_contents` wrote."""
    with np.load(path) as columns:
        return list(columns.values())
