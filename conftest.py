"""Names that the examples in docstrings use."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import tf_hps


@pytest.fixture(autouse=True)
def _names(doctest_namespace):
    doctest_namespace.update(np=np, tf=tf, tf_hps=tf_hps, tf_keras=tf_keras)
