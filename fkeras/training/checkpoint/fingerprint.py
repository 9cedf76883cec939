"""Fingerprints of models and optimizers: readable facts, and a digest of what they leave out.

What may change from one run to the next without harm (the number of epochs, a callback) is in none.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from fkeras.engine import Configurable, serialize
from fkeras.engine.config.serialization import encode
from fkeras.training.checkpoint.files.arrays import named_leaves

#: a list of more numbers than these (a matrix in a configuration) is shown by its digest
_LONGEST = 64
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def digest(value: Any) -> str:
    """16 hexadecimal digits that tell JSON data, or bytes, from others.

    Example:
        >>> digest({"a": 1}) == digest({"a": 1}), digest({"a": 1}) == digest({"a": 2})
        (True, False)
    """
    data = value if isinstance(value, bytes) else json.dumps(value, sort_keys=True).encode()
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def kind_of(array: Any) -> str:
    """Dtype and shape of an array, such as "float32[3, 4]"."""
    return f"{np.dtype(array.dtype).name}{list(array.shape)}"


def model_fingerprint(model: Any) -> dict[str, Any]:
    """The facts by which a model is known again: its layers, its weights, its configuration.

    Args:
        model: a built layer or network; the numbers in its weights are no part of the facts.

    Returns:
        JSON data for `compare`.

    Example:
        >>> import jax, fkeras as fk
        >>> from fkeras.training.checkpoint import model_fingerprint
        >>> model = fk.Sequential([fk.Input((3,)), fk.layers.Dense(1)]).build(jax.random.key(0))
        >>> model_fingerprint(model)["weights"]
        {'dense/kernel': 'float32[3, 1]', 'dense/bias': 'float32[1]'}
    """
    weights = {name: kind_of(leaf) for name, leaf in named_leaves(model).items()}
    try:
        config = serialize(model)
    except (TypeError, ValueError) as error:
        # a lambda has no name to be known by; then the weights must do
        config = {"class_name": type(model).__name__, "config": {"no_json": type(error).__name__}}
    facts = {"class": config["class_name"], **_config_of(config["config"])}
    layers = facts.get("layers", {})
    return {"number_of_layers": len(layers) or 1, "weights": weights, **_closed(facts)}


def optimizer_fingerprint(optimizer: Any) -> dict[str, Any]:
    """The facts by which an optimizer is known again.

    Args:
        optimizer: a value of `fk.optimizers`, whose arguments are the facts; or an optax
            transformation, which tells no more than the structure of its state.

    Returns:
        JSON data for `compare`.

    Example:
        >>> import fkeras as fk
        >>> from fkeras.training.checkpoint import compare, optimizer_fingerprint
        >>> old, new = (optimizer_fingerprint(fk.optimizers.SGD(rate)) for rate in (0.1, 0.2))
        >>> compare({"optimizer": old}, {"optimizer": new})
        ['optimizer: learning_rate was 0.1, is 0.2']
    """
    facts: dict[str, Any] = {"class": type(optimizer).__name__}
    if isinstance(optimizer, Configurable):
        for field in dataclasses.fields(optimizer):
            facts[field.name] = _value_of(getattr(optimizer, field.name))
    elif hasattr(optimizer, "init"):
        facts["state"] = _state_of(optimizer)
    return _closed(facts)


def _closed(facts: dict[str, Any]) -> dict[str, Any]:
    return {**facts, "digest": digest(facts)}


def _value_of(value: Any) -> Any:
    try:
        return _config_of(encode(value))
    except TypeError:
        return function_name(value)


def function_name(value: Any) -> str:
    """A name for what has no JSON form, which is the same in every process."""
    name = getattr(value, "__qualname__", None) or type(value).__qualname__
    module = getattr(value, "__module__", None) or type(value).__module__
    return f"{module}.{name}"


def _config_of(value: Any) -> Any:
    """A configuration without what says nothing, its layers by their names."""
    if isinstance(value, Mapping):
        if value.keys() >= {"class_name", "config"}:
            config = value["config"]
            inner = _config_of(config) if isinstance(config, Mapping) else {"name": config}
            return {"class": value["class_name"], **inner}
        return {str(k): _config_of(v) for k, v in value.items() if v is not None}
    if isinstance(value, list | tuple):
        named = {_name_of(one): one for one in value}
        if value and None not in named and len(named) == len(value):
            return {name: _config_of(one) for name, one in named.items()}
        plain = [_config_of(one) for one in value]
        if _size(plain) > _LONGEST:
            return f"{_size(plain)} values of digest {digest(plain)}"
        return plain
    return value


def _name_of(value: Any) -> str | None:
    config = value.get("config") if isinstance(value, Mapping) else None
    return config.get("name") if isinstance(config, Mapping) else None


def _size(value: Any) -> int:
    return sum(map(_size, value)) if isinstance(value, list) else 1


def _state_of(transformation: Any) -> str:
    weights = {"kernel": jax.ShapeDtypeStruct((2, 3), "float32")}
    try:
        state = jax.eval_shape(transformation.init, weights)
    except Exception as error:  # it knows the weights of one model by their names
        return f"for weights of its own ({type(error).__name__})"
    leaves = ", ".join(f"{name}: {kind_of(leaf)}" for name, leaf in named_leaves(state).items())
    return _ADDRESS.sub("", f"{jax.tree.structure(state)} with {leaves or 'no arrays'}")
