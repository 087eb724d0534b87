"""HPSEmbedding: `tf_keras.layers.Embedding` over a tiered table."""

import tensorflow as tf
import tf_keras

from tf_hps import _ops, checkpoint, initializers, keras3
from tf_hps._inputs import any_int64, positive_int
from tf_hps.anchor import anchor_of
from tf_hps.model_inputs import FLOAT_IDS_HINT, refuse_float_ids
from tf_hps.store import check_store, default_store
from tf_hps.strategy import check_strategy
from tf_hps.table import Table

_COMBINERS = (None, "sum", "mean", "sqrtn")
tf_keras.utils.register_keras_serializable("tf_hps")(Table)


@tf_keras.utils.register_keras_serializable("tf_hps")
class HPSEmbedding(tf_keras.layers.Layer):
    """Turns ids into dense vectors, as `tf_keras.layers.Embedding`, from a tiered table.

    The rows live in a `Table` of a `Store`, in DRAM and on SSD, and come into being
    when training first meets their id. Everything but training only looks: an id
    that was never trained reads as the row it would start from.

    Train it with `tf_hps.HPSOptimizer`; other optimizers raise a `TypeError`.

    >>> layer = tf_hps.HPSEmbedding(1000, 4, embeddings_initializer="zeros", name="words")
    >>> layer(tf.constant([[4, 20, 4]])).shape
    TensorShape([1, 3, 4])
    >>> layer.table.size()
    0
    >>> _ = layer(tf.constant([[4, 20, 4]]), training=True)
    >>> layer.table.size()
    2

    Args:
      input_dim: ids are in `[0, input_dim)`; others raise `InvalidArgumentError`.
        `None`: every int64 is an id, negative ones too.
      output_dim: length of a row, at least 1.
      embeddings_initializer: name, config or object of a `tf_keras` initializer whose
        values don't depend on their place in the matrix: uniform, normal, truncated
        normal, zeros, ones, constant and, with an `input_dim`, Glorot, He and LeCun.
      mask_zero: id 0 is padding: masks it for the layers after, or, with a
        combiner, leaves it out.
      input_length: length of the input sequences, when it is constant.
      combiner: `None`, or "sum", "mean" or "sqrtn": combines the rows of the last
        axis of the ids into one. Of no ids it makes zeros.
      store: the `Store` that holds the table; `None`: the process's default one.
        In a store with a path the layer needs a `name`: it is the table's, and the rows that
        a table of that name has there are used, also by another layer or model of this name.
      table: a `Table` to use instead of an own one, with its own initializer and seed.
        Layers may share a table.
      seed: of the initial rows, unless the initializer has its own. A row is a
        function of the seed, the layer's (or given table's) name, and the id.
      cast_ids: ids of other types are cast to int64, as `tf_keras.layers.Embedding` casts
        them. A float32 holds ids up to 2**24 only, hence the default: they raise.
      embeddings_regularizer, embeddings_constraint: must be `None`.
      **kwargs: of `tf_keras.layers.Layer`: name, dtype, trainable, ...

    Input shape:
      int32 or int64 of any shape `[...]`; `[..., n]` with a combiner.

    Output shape:
      `[..., n, output_dim]`; `[..., output_dim]` with a combiner.

    Raises:
      ValueError: an argument has a value that is not described above.
      TypeError: the ids are not integers, are sparse or ragged, or come from Keras 3.
      NotImplementedError: under a `tf.distribute` strategy of several replicas.
    """

    def __init__(
        self,
        input_dim,
        output_dim,
        embeddings_initializer="uniform",
        mask_zero=False,
        input_length=None,
        *,
        combiner=None,
        store=None,
        table=None,
        seed=0,
        cast_ids=False,
        embeddings_regularizer=None,
        embeddings_constraint=None,
        **kwargs,
    ):
        if combiner not in _COMBINERS:
            raise ValueError(f"combiner: expected one of {_COMBINERS}. Received: {combiner!r}")
        _refuse_matrix_options(embeddings_regularizer, embeddings_constraint)
        check_store(store)
        self._is_named = kwargs.get("name") is not None
        if "input_shape" not in kwargs and "batch_input_shape" not in kwargs:
            kwargs["input_shape"] = _default_input_shape(input_length)
        super().__init__(**kwargs, autocast=False)
        if self.variable_dtype != "float32":
            raise ValueError(
                f"Layer '{self.name}' got dtype={self._dtype_policy.name!r}, but rows are "
                "float32: use the policy 'float32', 'mixed_float16' or 'mixed_bfloat16'."
            )
        self.input_dim = None if input_dim is None else positive_int(input_dim, "input_dim")
        self.output_dim = positive_int(output_dim, "output_dim")
        self.embeddings_initializer = tf_keras.initializers.get(embeddings_initializer)
        self.mask_zero = mask_zero
        self.supports_masking = mask_zero and combiner is None
        self.input_length = input_length
        self.combiner = combiner
        self.seed = any_int64(seed, "seed")
        self.cast_ids = cast_ids
        self._store = self._no_dependency(store)  # a checkpoint has tables, no stores
        self._has_own_table = table is None
        if table is not None:
            self.table = _checked_table(table, store, self.output_dim, self.name)

    @property
    def dtype(self):
        """int64, the dtype of the ids: `Sequential` declares the model's input with it.

        `compute_dtype` and `variable_dtype` are those of the rows.
        """
        return "int64"

    @property
    def variable_dtype(self):
        """float32, the dtype of the rows."""
        return self._dtype_policy.variable_dtype

    def build(self, input_shape=None):
        """Makes the layer's table, or attaches to it."""
        check_strategy(f"HPSEmbedding '{self.name}'")
        if not hasattr(self, "table"):
            self._check_named()
            self.table = Table._for_layer(
                self.name,
                self.output_dim,
                self._store,
                initializers.to_spec(self.embeddings_initializer, self.input_dim, self.output_dim),
                initializers.seed_of(self.embeddings_initializer, self.seed),
            )
        self._anchor = anchor_of(self.table)
        super().build(input_shape)

    def _check_named(self):
        """Raises if the name, Keras's own choice, would decide which rows on disk are used."""
        store = self._store or default_store()
        if not self._is_named and not store.temporary:
            raise ValueError(
                f"The layer has no name, and a store with a path ('{store.path}') finds a layer's "
                "rows by it: Keras's names count the layers of a process, so that other rows would "
                "be used next time. Name the layer after what its ids are: "
                f"HPSEmbedding({self.input_dim}, {self.output_dim}, name='user', ...)"
            )

    def __call__(self, inputs, *args, **kwargs):
        keras3.refuse_call(self, inputs)
        if not self.cast_ids:
            refuse_float_ids(self)
        if not self.built:
            self._checked_ids(inputs)  # before build, which makes the table
        return super().__call__(inputs, *args, **kwargs)

    def call(self, inputs, training=None):
        """Looks the rows of `inputs` up; creates them when training.

        Args:
          inputs: ids, int32 or int64 `[...]`.
          training: whether unseen ids get a row; bool or scalar bool tensor.

        Returns:
          `[..., output_dim]`, or what the combiner makes of it, in `compute_dtype`.
        """
        ids = self._checked_ids(inputs)
        create = False if training is None or not self.trainable else training
        rows = self._combined(ids, create) if self.combiner else self._lookup(ids, create)
        return tf.cast(rows, self.compute_dtype)

    def _lookup(self, ids, create):
        """Rows of `ids` `[...]`: `[..., dim]`. `create` is a bool or a bool tensor."""
        anchor = self._anchor.read_value()  # reading it is what makes a tape watch the lookup
        if not self.trainable:
            anchor = tf.stop_gradient(anchor)

        def run(op):
            return op(
                self.table.handle, ids, anchor, dim=self.output_dim, input_dim=self.input_dim or 0
            )

        with _ops.readable_errors():
            return tf.__internal__.smart_cond.smart_cond(
                create,
                lambda: run(_ops.ops.tf_hps_lookup_or_create),
                lambda: run(_ops.ops.tf_hps_lookup),
            )

    def _combined(self, ids, create):
        """Rows of the last axis of `ids` `[..., n]` combined: `[..., output_dim]`."""
        if not self.mask_zero:
            rows = self._lookup(ids, create)
            count = tf.fill(tf.shape(ids)[:-1], tf.shape(ids)[-1])
        else:
            kept = ids != 0
            rows = self._lookup(tf.boolean_mask(ids, kept), create)
            shape = tf.concat([tf.shape(ids, tf.int64), [self.output_dim]], 0)
            rows = tf.scatter_nd(tf.where(kept), rows, shape)
            count = tf.math.count_nonzero(kept, -1)
        total = tf.reduce_sum(rows, -2)
        total = tf.ensure_shape(total, ids.shape[:-1] + [self.output_dim])
        if self.combiner == "sum":
            return total
        count = tf.cast(count, total.dtype)[..., tf.newaxis]
        return tf.math.divide_no_nan(total, count if self.combiner == "mean" else tf.sqrt(count))

    def _checked_ids(self, inputs):
        """Returns `inputs` as a dense int32 or int64 tensor, or raises."""
        if isinstance(inputs, (tf.RaggedTensor, tf.SparseTensor)):
            raise TypeError(
                f"Layer '{self.name}' got a {type(inputs).__name__}; its ids must be dense. "
                "Use .to_tensor() or tf.sparse.to_dense(), with mask_zero=True and a "
                "combiner if the padding, id 0, is to be left out."
            )
        ids = tf.convert_to_tensor(inputs)
        if self.cast_ids and ids.dtype != tf.int32:
            ids = tf.cast(ids, tf.int64)
        if ids.dtype not in (tf.int32, tf.int64):
            raise TypeError(
                f"Layer '{self.name}' got ids of dtype {ids.dtype.name}; they must be int32 "
                "or int64. Cast the data, ids.astype('int64'), before it gets into TensorFlow, "
                'declare a model\'s input with Input(..., dtype="int64"), and compile the model '
                f"again. {FLOAT_IDS_HINT}"
            )
        if self.combiner and ids.shape.rank == 0:
            raise ValueError(
                f"Layer '{self.name}' combines the last axis of its ids, but got a scalar."
            )
        return ids

    def compute_mask(self, inputs, mask=None):
        """`inputs != 0` with `mask_zero`; `None` otherwise and with a combiner."""
        if not self.supports_masking:
            return None
        return tf.not_equal(inputs, 0)

    def compute_output_shape(self, input_shape):
        """Shape of the output for ids of `input_shape`; checks `input_length`."""
        shape = tf.TensorShape(input_shape).as_list()
        if self.input_length is not None:
            shape = [shape[0], *_merged_lengths(self.input_length, shape)]
        if self.combiner:
            shape = shape[:-1]
        return tf.TensorShape([*shape, self.output_dim])

    def get_config(self):
        """The arguments, but for `store`: a copy lives in the default one.

        A given `table` is among them: layers of a loaded model share a table as these do.
        """
        return super().get_config() | {
            "input_dim": self.input_dim,
            "output_dim": self.output_dim,
            "embeddings_initializer": tf_keras.initializers.serialize(self.embeddings_initializer),
            "mask_zero": self.mask_zero,
            "input_length": self.input_length,
            "combiner": self.combiner,
            "seed": self.seed,
            "cast_ids": self.cast_ids,
            "table": None if self._has_own_table else self.table,
        }

    @classmethod
    def from_config(cls, config):
        """Makes a layer from `get_config()`."""
        if isinstance(config.get("table"), dict):
            table = tf_keras.saving.deserialize_keras_object(config["table"])
            config = config | {"table": table}
        return cls(**config)

    def save_own_variables(self, store):
        """Writes the table into a `.keras` or `.weights.h5` file."""
        if self.built:
            checkpoint.write_files(self.table, store)

    def load_own_variables(self, store):
        """Reads the table from a `.keras` or `.weights.h5` file: all rows, and their state."""
        if not self.built:
            raise ValueError(f"Layer '{self.name}' has no table yet: build it before loading.")
        checkpoint.read_files(self.table, store)

    def _lookup_dependency(self, name, *args, **kwargs):
        # TensorFlow asks for each child that a checkpoint has for this layer.
        if name == "embeddings":
            raise ValueError(
                f"The checkpoint holds a dense matrix for layer '{self.name}', not a table. "
                "Load it into the model with tf_keras's Embedding and pass that to "
                "tf_hps.make_tiered, or give its rows to layer.table.upsert."
            )
        return super()._lookup_dependency(name, *args, **kwargs)

    def _checkpoint_adapter(self, path):
        # TensorFlow asks when it restores this layer.
        checkpoint.check_has_tables(path, self.name)
        return super()._checkpoint_adapter(path)

    def __repr__(self):
        # Keras 3 prints what it cannot use, and nothing else: say here what to do.
        return (
            f"<HPSEmbedding '{self.name}', input_dim={self.input_dim}, "
            f"output_dim={self.output_dim}: a layer of tf_keras. {keras3.HINT}>"
        )


def _refuse_matrix_options(regularizer, constraint):
    for option, value in (("regularizer", regularizer), ("constraint", constraint)):
        if value is not None:
            raise ValueError(
                f"embeddings_{option}={value!r} is not supported: it would need every row at "
                "every step. Leave it None; activity_regularizer acts on the rows looked up."
            )


def _default_input_shape(input_length):
    # As tf_keras's Embedding: Sequential can then declare its input from its first layer.
    if isinstance(input_length, (list, tuple)):
        return tuple(input_length)
    return (input_length,)


def _merged_lengths(input_length, shape):
    """The known one of each of `input_length` and of `shape` after the batch axis."""
    lengths = list(input_length) if isinstance(input_length, (list, tuple)) else [input_length]
    if len(lengths) != len(shape) - 1 or any(
        None not in (expected, got) and expected != got
        for expected, got in zip(lengths, shape[1:], strict=True)
    ):
        raise ValueError(f"input_length is {input_length}, but received ids of shape {shape}")
    return [
        got if length is None else length for length, got in zip(lengths, shape[1:], strict=True)
    ]


def _checked_table(table, store, dim, layer):
    if not isinstance(table, Table):
        raise TypeError(f"table must be a tf_hps.Table. Received: table={table!r}")
    if store is not None and table.store is not store:
        raise ValueError(
            f"Layer '{layer}' got a store and a table of another store; pass the table alone."
        )
    if table.dim != dim:
        raise ValueError(
            f"Layer '{layer}' has output_dim={dim}, but its table '{table.name}' has "
            f"dim={table.dim}. Make them equal."
        )
    return table
