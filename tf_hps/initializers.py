"""Keras initializers as the engine's: one canonical string, a function of each key.

The engine draws a row from (seed, table, key), so only initializers that treat
every element alike can be used.
"""

import math
import re

import numpy as np

# Keras's defaults: argument -> default, in the order of the canonical spec.
_ARGUMENTS = {
    "uniform": {"minval": -0.05, "maxval": 0.05},
    "normal": {"mean": 0.0, "stddev": 0.05},
    "truncated_normal": {"mean": 0.0, "stddev": 0.05},
    "constant": {"value": 0.0},
    "zeros": {},
    "ones": {},
    "variance_scaling": {"scale": 1.0, "mode": "fan_in", "distribution": "truncated_normal"},
}
_ALIASES = {"random_uniform": "uniform", "random_normal": "normal", "zero": "zeros", "one": "ones"}
_SCALING = {  # named cases of variance_scaling: (scale, mode, distribution)
    "glorot_uniform": (1.0, "fan_avg", "uniform"),
    "glorot_normal": (1.0, "fan_avg", "truncated_normal"),
    "he_uniform": (2.0, "fan_in", "uniform"),
    "he_normal": (2.0, "fan_in", "truncated_normal"),
    "lecun_uniform": (1.0, "fan_in", "uniform"),
    "lecun_normal": (1.0, "fan_in", "truncated_normal"),
}
_SPEC = re.compile(r"(\w+)\((.*)\)")
# Standard deviation of a standard normal distribution cut off at two (scipy.stats.truncnorm.std).
_TRUNCATED_STDDEV = 0.87962566103423978


def to_spec(initializer, input_dim=None, output_dim=None):
    """Returns the canonical spec of an initializer.

    >>> to_spec("uniform")
    'uniform(minval=-0.05,maxval=0.05)'
    >>> to_spec(tf_keras.initializers.Constant(0.5))
    'constant(value=0.5)'
    >>> to_spec("glorot_uniform", input_dim=1000, output_dim=8)
    'uniform(minval=-0.077...,maxval=0.077...)'
    >>> to_spec("orthogonal")
    Traceback (most recent call last):
    ...
    ValueError: Unsupported initializer 'orthogonal'...

    Args:
      initializer: a name ("uniform", "RandomNormal", "zeros", ...), a canonical
        spec, a Keras initializer or its class or config, or None for "uniform".
      input_dim: number of keys, and
      output_dim: dim of a row, for initializers that depend on them (glorot, he, lecun).

    Returns:
      The string that the ops take. Zeros and ones are constants.

    Raises:
      ValueError: for initializers and arguments that the engine does not have.
    """
    name, arguments = _parse("uniform" if initializer is None else initializer)
    if name in _SCALING:
        arguments = dict(zip(("scale", "mode", "distribution"), _SCALING[name], strict=True))
        name = "variance_scaling"
    arguments = _with_defaults(initializer, name, arguments)
    if name == "variance_scaling":
        name, arguments = _scale(initializer, arguments, input_dim, output_dim)
    if name in ("zeros", "ones"):
        name, arguments = "constant", {"value": float(name == "ones")}
    _check_values(initializer, name, arguments)
    return f"{name}({','.join(f'{key}={value!r}' for key, value in arguments.items())})"


def seed_of(initializer, seed=0):
    """Returns the seed given to a Keras initializer, or `seed` if it has none.

    >>> seed_of(tf_keras.initializers.RandomUniform(seed=3))
    3
    >>> seed_of("uniform", seed=7)
    7

    Args:
      initializer: as for `to_spec`.
      seed: int, what to return otherwise.

    Returns:
      An int.
    """
    own = _config(initializer)[1].get("seed")
    return seed if own is None else int(own)


def _config(initializer):
    """Returns (class name or name, dict of arguments) of what a user may give."""
    if isinstance(initializer, str):
        return initializer, {}
    if isinstance(initializer, dict):
        return str(initializer.get("class_name")), dict(initializer.get("config") or {})
    if isinstance(initializer, type) and hasattr(initializer, "get_config"):
        initializer = initializer()
    if hasattr(initializer, "get_config"):
        return type(initializer).__name__, dict(initializer.get_config())
    return repr(initializer), {}


def _parse(initializer):
    """Returns the engine's or `_SCALING`'s name, and the arguments without the seed."""
    name, arguments = _config(initializer)
    spec = _SPEC.fullmatch(name)
    if spec and isinstance(initializer, str):
        name, pairs = spec[1], [pair.split("=") for pair in spec[2].split(",")]
        arguments = {pair[0]: pair[-1] for pair in pairs}
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().removesuffix("_v2")
    name = _ALIASES.get(name, name)
    if name not in _ARGUMENTS and name not in _SCALING:
        raise ValueError(
            f"Unsupported initializer {initializer!r}: each row must be a function of its key "
            f"alone. Use one of {', '.join(sorted(_ARGUMENTS | _SCALING))}, or a tf_keras "
            "initializer of that name; other initial rows can be given with Table.upsert"
        )
    arguments.pop("seed", None)
    return name, arguments


def _with_defaults(initializer, name, arguments):
    """Returns the arguments of `name`, in order, numbers as floats."""
    arguments.pop("dtype", None)
    unknown = arguments.keys() - _ARGUMENTS[name].keys()
    if unknown and name not in ("zeros", "ones"):
        raise ValueError(f"Unknown arguments {sorted(unknown)} of initializer {initializer!r}")
    result = {}
    for key, default in _ARGUMENTS[name].items():
        value = arguments.get(key, default)
        try:
            result[key] = (
                value if isinstance(default, str) else float(np.asarray(value, np.float64))
            )
        except (TypeError, ValueError):
            raise ValueError(
                f"Argument {key} of initializer {initializer!r} must be one number. "
                f"Received: {value!r}"
            ) from None
    return result


def _scale(initializer, arguments, input_dim, output_dim):
    """Returns the distribution that VarianceScaling has for a [input_dim, output_dim] weight."""
    if not input_dim or not output_dim:
        raise ValueError(
            f"Initializer {initializer!r} depends on the number of keys, which is not known here: "
            "give input_dim, or a 'uniform', 'normal' or 'truncated_normal' of the scale you want"
        )
    fan = {"fan_in": input_dim, "fan_out": output_dim, "fan_avg": (input_dim + output_dim) / 2}
    scale = arguments["scale"] / max(1.0, fan[arguments["mode"]])
    if arguments["distribution"] == "uniform":
        limit = math.sqrt(3.0 * scale)
        return "uniform", {"minval": -limit, "maxval": limit}
    if arguments["distribution"] == "untruncated_normal":
        return "normal", {"mean": 0.0, "stddev": math.sqrt(scale)}
    return "truncated_normal", {"mean": 0.0, "stddev": math.sqrt(scale) / _TRUNCATED_STDDEV}


def _check_values(initializer, name, arguments):
    """Refuses numbers that no distribution has."""
    finite = all(math.isfinite(value) for value in arguments.values())
    ordered = name != "uniform" or arguments["minval"] <= arguments["maxval"]
    if not (finite and ordered and arguments.get("stddev", 0.0) >= 0):
        raise ValueError(
            f"Initializer {initializer!r} needs finite numbers, minval <= maxval and "
            f"stddev >= 0. Received: {name} with {arguments}"
        )
