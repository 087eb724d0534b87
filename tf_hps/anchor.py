"""The variable that stands for a table where TensorFlow wants a variable.

A table's rows are no `tf.Variable`, so a tape has nothing to watch and Keras has
no weight to list. Each table therefore has one *anchor*: a trainable variable
of shape `[0, dim]`. Lookups take it as an input, and their gradient for it is an
`IndexedSlices` of the rows' gradients, indexed by key.
"""

import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops


class AnchorVariable(resource_variable_ops.ResourceVariable):
    """A variable without elements whose gradients belong to the rows of a table.

    Only `HPSOptimizer` can apply them. Every other optimizer is stopped by a
    `TypeError` at the first thing that only optimizers ask of a variable:

    * `_distributed_container` is asked for by optimizers that look up a variable's
      slots (`tf_keras.optimizers`, its `legacy` ones, Keras 3's, `tf.compat.v1.train`'s);
    * `constraint` by those that have no slots (legacy and v1 plain SGD);
    * `scatter_*` and `assign_*` by optimizers of the user's own.

    Nor has it values to be read and set as an array: `get_weights()` would silently lack
    the rows, so `numpy` and `assign` raise. Checkpoints use the variable's handle.

    Args:
      table: the `Table` it stands for.

    >>> anchor = anchor_of(tf_hps.Table("anchor_example", 4))
    >>> anchor.shape
    TensorShape([0, 4])
    >>> tf_keras.optimizers.SGD().build([anchor])
    Traceback (most recent call last):
    ...
    TypeError: An optimizer that is not wrapped cannot train the rows of table ...
    """

    def __init__(self, table):
        strategy = tf.distribute.get_strategy() if tf.distribute.has_strategy() else None
        super().__init__(
            tf.zeros([0, table.dim]), trainable=True, name="anchor", distribute_strategy=strategy
        )
        self.table = table

    def _refuse(self, *unused_args, **unused_kwargs):
        raise TypeError(
            "An optimizer that is not wrapped cannot train the rows of table "
            f"'{self.table.name}' (an HPSEmbedding's). Wrap it: "
            "tf_hps.HPSOptimizer(tf_keras.optimizers.Adam(...)). It then trains the "
            "tables and the dense weights of the model alike. Loss scaling goes "
            "around it: LossScaleOptimizer(tf_hps.HPSOptimizer(...))."
        )

    def _refuse_array(self, *unused_args, **unused_kwargs):
        raise TypeError(
            f"Weights as arrays cannot carry the rows of table '{self.table.name}' (an "
            "HPSEmbedding's): get_weights, set_weights and whole models in .h5 don't work. "
            'Use save_weights("dir/name") (TensorFlow\'s format), .keras, .weights.h5 or '
            'model.save(dir, save_format="tf"); table.export() and table.upsert() move rows. '
            "In the place of EarlyStopping(restore_best_weights=True) use "
            'ModelCheckpoint("best.keras", save_best_only=True) and load_weights.'
        )

    numpy = assign = _refuse_array  # checkpoints go through the handle instead
    _distributed_container = property(_refuse)
    constraint = property(_refuse)
    assign_add = assign_sub = _refuse
    scatter_add = scatter_sub = scatter_update = scatter_nd_add = _refuse
    scatter_nd_sub = scatter_min = scatter_max = scatter_mul = scatter_div = _refuse


def anchor_of(table):
    """Returns the anchor of `table`, made at its first need.

    There is one for all layers that use the table, so that their gradients arrive
    together and are clipped together, as those of one dense weight.

    Args:
      table: a `Table`.

    Returns:
      Its `AnchorVariable`, shape `[0, dim]`, float32.
    """
    shared = table._resource.__dict__  # of all Table objects for one table
    if "anchor" not in shared:
        with tf.init_scope():
            shared.setdefault("anchor", AnchorVariable(table))
    return shared["anchor"]
