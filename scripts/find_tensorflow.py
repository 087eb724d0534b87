"""Prints folder and version of the TensorFlow that this Python would import, without importing it.

CMake, setup.py and Bazel all ask here: importing TensorFlow takes seconds, finding it none.
"""

import importlib.metadata
import importlib.util
import pathlib
import sys

DISTRIBUTIONS = ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tensorflow-rocm", "tf-nightly")


def find_tensorflow():
    """Returns (folder, version) of the TensorFlow of this Python, or None where there is none."""
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = pathlib.Path(spec.submodule_search_locations[0])
    if not (folder / "include/tensorflow/core/framework/op.h").is_file():
        return None
    for name in DISTRIBUTIONS:
        try:
            return folder, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return None


if __name__ == "__main__":
    found = find_tensorflow()
    if found is None:
        sys.exit(f"{sys.executable} has no TensorFlow 2.21: pip install 'tensorflow==2.21.*'")
    print(*found, sep="\n")
