"""Says early which of TensorFlow's distribution strategies tables work under."""

import tensorflow as tf


def check_strategy(user):
    """Raises under a strategy that would train tables wrongly or not at all.

    Args:
      user: what is about to be used, for the error.

    Raises:
      NotImplementedError: names the strategy and what works.
    """
    strategy = tf.distribute.get_strategy()
    if tf.distribute.has_strategy() and not isinstance(strategy, tf.distribute.OneDeviceStrategy):
        raise NotImplementedError(
            f"{user} does not work under {type(strategy).__name__} yet: train in one process, "
            "without a strategy or under tf.distribute.OneDeviceStrategy."
        )
