"""Which tf_keras optimizers can train tables, and what the engine needs of them."""

import tensorflow as tf
import tf_keras

from tf_hps import keras3

_SUPPORTED = "SGD (with momentum and Nesterov), Adagrad and Adam (with AMSGrad)"


def checked_optimizer(optimizer):
    """Returns `optimizer`, made from its name if need be, or says why it can't be wrapped.

    Args:
      optimizer: a `tf_keras` optimizer, its name or its config.

    Raises:
      TypeError: not an optimizer of tf_keras that may be wrapped.
      ValueError: a kind or setting that tables don't support.
    """
    if isinstance(optimizer, (str, dict)):
        optimizer = tf_keras.optimizers.get(optimizer)
    _check_type(optimizer)
    if type(optimizer) not in _RULES:
        raise ValueError(
            f"Tables cannot be trained by {_class_name(optimizer)}. Supported are "
            f"tf_keras.optimizers' {_SUPPORTED}."
        )
    for option in ("weight_decay", "use_ema"):
        if getattr(optimizer, option, None):
            raise ValueError(
                f"{_class_name(optimizer)} has {option}={getattr(optimizer, option)}, which would "
                "need every row of a table at every step. Leave it out."
            )
    return optimizer


def _check_type(optimizer):
    name = _class_name(optimizer)
    if keras3.is_keras3(optimizer):
        raise TypeError(f"{name} is an optimizer of Keras 3. {keras3.HINT}.")
    if isinstance(optimizer, tf_keras.mixed_precision.LossScaleOptimizer):
        raise TypeError(
            "Loss scaling goes around: LossScaleOptimizer(tf_hps.HPSOptimizer(inner)), "
            f"not inside. Received: {name}"
        )
    if isinstance(optimizer, tf_keras.optimizers.legacy.Optimizer):
        raise TypeError(
            f"{name} is a legacy optimizer; use tf_keras.optimizers.{type(optimizer).__name__}."
        )
    if not isinstance(optimizer, tf_keras.optimizers.Optimizer):
        raise TypeError(
            "HPSOptimizer wraps an optimizer of tf_keras, for example "
            f"tf_keras.optimizers.Adam(). Received: {optimizer!r} of type {name}"
        )
    if hasattr(optimizer, "inner"):
        raise TypeError("The optimizer is an HPSOptimizer already; wrap it once only.")


def rule_of(optimizer):
    """Returns the engine's name of `optimizer`'s rule, and its settings for this step.

    Args:
      optimizer: what `checked_optimizer` returned; `learning_rate` is up to date.

    Returns:
      Its canonical spec, a string, and its hyperparameters, a float32 tensor `[h]`.
    """
    spec, values = _RULES[type(optimizer)](optimizer)
    values = [tf.cast(value, tf.float32) for value in (optimizer.learning_rate, *values)]
    return spec, tf.stack(values)


def _sgd(optimizer):
    if not optimizer.momentum:
        return "sgd", []
    spec = f"momentum(momentum={float(optimizer.momentum)!r},nesterov={int(optimizer.nesterov)})"
    return spec, [optimizer.momentum]


def _adagrad(optimizer):
    initial = float(optimizer.initial_accumulator_value)
    return f"adagrad(initial_accumulator_value={initial!r})", [optimizer.epsilon]


def _adam(optimizer):
    step = tf.cast(optimizer.iterations + 1, tf.float32)
    epsilon = tf.cast(optimizer.epsilon, tf.float32)
    if optimizer.adaptive_epsilon:
        epsilon *= tf.sqrt(1 - tf.pow(tf.cast(optimizer.beta_2, tf.float32), step))
    spec = f"adam(amsgrad={int(optimizer.amsgrad)})"
    return spec, [optimizer.beta_1, optimizer.beta_2, epsilon, step]


_RULES = {
    tf_keras.optimizers.SGD: _sgd,
    tf_keras.optimizers.Adagrad: _adagrad,
    tf_keras.optimizers.Adam: _adam,
}


def _class_name(value):
    return f"{type(value).__module__}.{type(value).__qualname__}"
