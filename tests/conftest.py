"""What tests of several files use."""

import pytest

import tf_hps


@pytest.fixture
def store():
    """An own temporary store, so that tests do not meet each other's tables."""
    with tf_hps.Store(dram_bytes="64MiB") as store:
        yield store


@pytest.fixture
def own_default_store(store):
    """Makes `store` the default one during a test."""
    tf_hps.set_default_store(store)
    yield store
    tf_hps.set_default_store(None)
