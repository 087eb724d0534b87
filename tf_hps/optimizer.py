"""HPSOptimizer: a tf_keras optimizer that also trains the rows of tables."""

import tensorflow as tf
import tf_keras
from tf_keras.src.optimizers import utils as optimizer_utils

from tf_hps import _ops, keras3, update_rules
from tf_hps.anchor import AnchorVariable
from tf_hps.strategy import check_strategy

_NON_FINITE = ("error", "skip", "propagate")


@tf_keras.utils.register_keras_serializable("tf_hps")
class HPSOptimizer(tf_keras.optimizers.Optimizer):
    """Trains tables and dense weights alike by the rule of the optimizer it wraps.

    SGD (also with momentum or Nesterov) and Adagrad train a table exactly as they train
    an `Embedding`. Adam (also AMSGrad) is lazy on tables: a step changes the rows that
    it uses only, the moments of others don't decay meanwhile.

    Clipping is the wrapped optimizer's, over tables and dense weights together.
    A learning-rate schedule, `iterations`, `learning_rate` and the slots of dense
    weights are the wrapped optimizer's too; the state of rows is in their table.

    >>> layer = tf_hps.HPSEmbedding(None, 2, embeddings_initializer="ones", name="clicks")
    >>> model = tf_keras.Sequential([layer, tf_keras.layers.Flatten()])
    >>> model.compile(tf_hps.HPSOptimizer(tf_keras.optimizers.SGD(0.5)), "mse")
    >>> _ = model.train_on_batch(tf.constant([[7]]), tf.zeros([1, 2]))
    >>> layer(tf.constant([7, 8])).numpy()
    array([[0.5, 0.5],
           [1. , 1. ]], dtype=float32)

    Args:
      inner: a `tf_keras` SGD, Adagrad or Adam, or its name; without `weight_decay` and
        `use_ema`, which would need every row at every step.
      non_finite: what to do about NaN or infinity in the gradient of a table, after
        clipping: "error" raises and changes nothing, neither tables nor weights nor
        `iterations`; "skip" leaves out the rows concerned; "propagate" applies them.

    Raises:
      TypeError: `inner` is no optimizer of tf_keras, or already an HPSOptimizer.
      ValueError: tables can't be trained by `inner`, or not with its settings.
      NotImplementedError: under a `tf.distribute` strategy of several replicas.
    """

    def __init__(self, inner, non_finite="error"):
        check_strategy("HPSOptimizer")
        inner = update_rules.checked_optimizer(inner)
        if non_finite not in _NON_FINITE:
            raise ValueError(f"non_finite: expected one of {_NON_FINITE}. Received: {non_finite!r}")
        self._inner = inner
        self._non_finite = non_finite
        super().__init__(
            name=f"HPS{inner.name}",
            clipnorm=inner.clipnorm,
            clipvalue=inner.clipvalue,
            global_clipnorm=inner.global_clipnorm,
            jit_compile=False,
        )

    @property
    def inner(self):
        """The wrapped optimizer."""
        return self._inner

    def _create_iteration_variable(self):
        self._iterations = self._inner.iterations

    @property
    def iterations(self):
        """Steps so far, an int64 variable: the wrapped optimizer's."""
        return self._inner.iterations

    @iterations.setter
    def iterations(self, variable):
        self._inner.iterations = variable
        self._iterations = variable

    @property
    def learning_rate(self):
        """The wrapped optimizer's learning rate, a variable; may be assigned."""
        return self._inner.learning_rate

    @learning_rate.setter
    def learning_rate(self, learning_rate):
        self._inner.learning_rate = learning_rate

    @property
    def _learning_rate(self):
        return self._inner._learning_rate

    @property
    def variables(self):
        """Variables of the wrapped optimizer; a table holds its rows' state."""
        return self._inner.variables

    def build(self, var_list):
        """Makes the slots of the dense variables among `var_list`."""
        self._inner.build([v for v in var_list if not isinstance(v, AnchorVariable)])
        self._built = True

    def aggregate_gradients(self, grads_and_vars):
        """Returns `grads_and_vars`: there is one replica only."""
        return grads_and_vars

    def apply_gradients(
        self, grads_and_vars, name=None, skip_gradients_aggregation=False, **kwargs
    ):
        """Updates tables first, then dense weights, then `iterations`.

        Args:
          grads_and_vars: pairs of gradient and variable; a table's are slices of its
            anchor, as `tape.gradient` gives them.
          name: name scope of the operations.
          skip_gradients_aggregation: for compatibility; there is one replica only.
          **kwargs: for compatibility.

        Returns:
          The variable `iterations`, or its value after the step.

        Raises:
          ValueError, TypeError: a gradient can't be of that table.
          InvalidArgumentError: a table's gradient is not finite, with "error".
        """
        check_strategy("HPSOptimizer")
        grads_and_vars = list(grads_and_vars)
        if not grads_and_vars:
            return self.iterations
        with tf.name_scope(name or self.name), tf.init_scope():
            self.build([variable for _, variable in grads_and_vars])
        with tf.name_scope(name or self.name):
            gradients, variables = zip(
                *optimizer_utils.filter_empty_gradients(grads_and_vars), strict=True
            )
            _check_gradients(gradients, variables)
            self._inner._compute_current_learning_rate()
            return self._update(self._inner._clip_gradients(gradients), variables)

    def _update(self, gradients, variables):
        sparse, dense = [], []
        for gradient, variable in zip(gradients, variables, strict=True):
            is_table = isinstance(variable, AnchorVariable)
            (sparse if is_table else dense).append((gradient, variable))
        with tf.control_dependencies(self._update_tables(sparse)):
            return self._update_dense(dense)

    def _update_tables(self, grads_and_anchors):
        """One operation for all tables: it checks them all before it changes any."""
        if not grads_and_anchors:
            return []
        gradients, anchors = zip(*grads_and_anchors, strict=True)
        rule, hyperparameters = update_rules.rule_of(self._inner)
        with _ops.readable_errors():
            update = _ops.ops.tf_hps_apply_gradients(
                tables=[anchor.table.handle for anchor in anchors],
                keys=[tf.cast(gradient.indices, tf.int64) for gradient in gradients],
                grads=[gradient.values for gradient in gradients],
                hyperparameters=hyperparameters,
                dense_step=tf.cast(self._inner.iterations, tf.int64) + 1,
                optimizer=rule,
                non_finite=self._non_finite,
            )
        return [] if update is None else [update]  # None: already done, eagerly

    def _update_dense(self, grads_and_vars):
        inner = self._inner
        gradients = inner._deduplicate_sparse_grad([gradient for gradient, _ in grads_and_vars])
        variables = [variable for _, variable in grads_and_vars]
        iterations = inner._internal_apply_gradients(list(zip(gradients, variables, strict=True)))
        for variable in variables:
            if variable.constraint is not None:
                variable.assign(variable.constraint(variable))
        return iterations

    def set_weights(self, weights):
        """Sets `variables` from arrays."""
        self._inner.set_weights(weights)

    def save_own_variables(self, store):
        """Writes `variables` into a `.keras` file."""
        self._inner.save_own_variables(store)

    def load_own_variables(self, store):
        """Reads `variables` from a `.keras` file."""
        self._inner.load_own_variables(store)

    def get_config(self):
        """The wrapped optimizer's config, and the own arguments."""
        config = {
            "inner": tf_keras.optimizers.serialize(self._inner),
            "non_finite": self._non_finite,
        }
        if getattr(self._inner, "adaptive_epsilon", False):
            config["adaptive_epsilon"] = True  # Adam's own config forgets it
        return config

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """Makes an optimizer, without state, from `get_config()`."""
        config = dict(config)
        inner = config.pop("inner")
        if not isinstance(inner, tf_keras.optimizers.Optimizer):
            inner = tf_keras.optimizers.deserialize(inner, custom_objects=custom_objects)
        if config.pop("adaptive_epsilon", False):
            inner.adaptive_epsilon = True
        return cls(inner, **config)

    def __repr__(self):
        # Keras 3 prints what it cannot use, and nothing else: say here what to do.
        inner = type(self._inner).__name__
        return f"<HPSOptimizer({inner}): an optimizer of tf_keras. {keras3.HINT}>"


def _delegated(name):
    def get(self):
        return getattr(self._inner, name)

    def set_(self, value):
        setattr(self._inner, name, value)

    return property(get, set_, doc=f"The wrapped optimizer's `{name}`.")


for _name in ("clipnorm", "clipvalue", "global_clipnorm"):
    setattr(HPSOptimizer, _name, _delegated(_name))


def _check_gradients(gradients, variables):
    """Raises if a gradient for an anchor can't be one of its table."""
    for gradient, variable in zip(gradients, variables, strict=True):
        if not isinstance(variable, AnchorVariable):
            continue
        table = variable.table
        if not isinstance(gradient, tf.IndexedSlices):
            raise TypeError(
                f"The gradient for table '{table.name}' is a dense tensor of shape "
                f"{gradient.shape}, not the tf.IndexedSlices that tape.gradient gives for a "
                "lookup: it no longer says which rows it belongs to. Don't convert it, and "
                "transform its .values only."
            )
        if not gradient.values.shape.is_compatible_with([None, table.dim]):
            raise ValueError(
                f"The gradient for table '{table.name}' has values of shape "
                f"{gradient.values.shape}; its rows need [n, {table.dim}]."
            )
