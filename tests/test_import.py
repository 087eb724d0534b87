"""Importing where the library cannot be loaded: one readable sentence."""

import pathlib
import shutil

import fresh
import pytest
import tensorflow as tf

import tf_hps

_IMPORT = """
import sys
sys.path.insert(0, sys.argv[1])
import tensorflow as tf
tf.__version__ = sys.argv[2]
try:
    import tf_hps
except ImportError as error:
    print(tf_hps.__file__ if "tf_hps" in dir() else error)
"""


@pytest.fixture
def package(tmp_path):
    """A copy of the package without its library."""
    source = pathlib.Path(tf_hps.__file__).parent
    shutil.copytree(
        source, tmp_path / "tf_hps", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    return tmp_path


def _sentence(package, tensorflow):
    (line,) = fresh.run(_IMPORT, package, tensorflow, header="").splitlines()
    return line


def test_another_tensorflow(package):
    sentence = _sentence(package, "2.20.3")
    assert "needs TensorFlow 2.21" in sentence and "TensorFlow 2.20.3 is installed" in sentence


def test_library_that_is_missing(package):
    sentence = _sentence(package, tf.__version__)
    assert "is not built" in sentence and "pip install ." in sentence


def test_library_with_an_undefined_symbol(package):
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc")
    source = package / "bad.c"
    source.write_text("extern int tf_hps_nowhere(void); int (*f)(void) = tf_hps_nowhere;")
    library = package / "tf_hps" / "_tf_hps_ops.so"
    fresh.subprocess.run([compiler, "-shared", "-fPIC", source, "-o", library], check=True)
    sentence = _sentence(package, tf.__version__)
    assert "undefined symbol: tf_hps_nowhere" in sentence
    assert (
        "built for TensorFlow 2.21" in sentence and f"under TensorFlow {tf.__version__}" in sentence
    )


def test_library_that_is_damaged(package):
    (package / "tf_hps" / "_tf_hps_ops.so").write_bytes(b"no library")
    assert "does not load under TensorFlow" in _sentence(package, tf.__version__)
