"""Loads the C++ library and declares its ops to TensorFlow.

`ops` is the module of op wrappers: the op `TfHps>Lookup` is `ops.tf_hps_lookup`.
"""

import contextlib
import os
import re

import tensorflow as tf
from tensorflow.python.framework import auto_control_deps_utils

from tf_hps._version import __version__

# The minor version whose headers the library is compiled with. Others have another
# Abseil namespace, so that the library's symbols are not found.
_TENSORFLOW = "2.21"
_LIBRARY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_tf_hps_ops.so")
# Ops that change nothing, so that a tf.function may run them side by side.
_READ_ONLY = ("Lookup", "Contains", "Size", "StorePath", "StoreStats", "StoreTables")


def _check_tensorflow():
    """Stops an import under a TensorFlow that the library cannot load under."""
    if tf.__version__.split(".")[:2] != _TENSORFLOW.split("."):
        raise ImportError(
            f"tf_hps {__version__} needs TensorFlow {_TENSORFLOW}, and TensorFlow "
            f"{tf.__version__} is installed: pip install 'tensorflow=={_TENSORFLOW}.*'"
        )


def _load():
    """Returns the module of op wrappers."""
    _check_tensorflow()
    if not os.path.exists(_LIBRARY):
        raise ImportError(
            f"tf_hps {__version__} is not built: {_LIBRARY} is missing. Run `pip install .` "
            f"(or `make build` in a clone), with TensorFlow {_TENSORFLOW} installed"
        )
    try:
        return tf.load_op_library(_LIBRARY)
    except (OSError, tf.errors.OpError) as error:
        raise ImportError(
            f"tf_hps {__version__} was built for TensorFlow {_TENSORFLOW} and its library "
            f"{_LIBRARY} does not load under TensorFlow {tf.__version__}; build it again with "
            f"the installed TensorFlow: pip install --force-reinstall --no-deps . "
            f"(cause: {str(error).splitlines()[0]})"
        ) from None


ops = _load()
for _op in _READ_ONLY:
    auto_control_deps_utils.register_read_only_resource_op(f"TfHps>{_op}")


@contextlib.contextmanager
def readable_errors():
    """Within it, errors of ops keep their class and lose TensorFlow's wrapping.

    `{{function_node __wrapped__TfHps>Upsert_device_...}} what happened [Op:TfHps>Upsert]`
    becomes `what happened`.
    """
    try:
        yield
    except tf.errors.OpError as error:
        message = re.sub(r"^\{\{.*?\}\} | \[Op:[^\]]*\]( name:.*)?$", "", error.message)
        raise type(error)(error.node_def, error.op, message) from None
