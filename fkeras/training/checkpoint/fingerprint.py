"""Fingerprints of models and optimizers: readable facts, and a digest of all facts.

A fingerprint excludes settings that may change between runs (the number of epochs, callbacks).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import jax
import optax

from fkeras.engine import Configurable, Layer, serialize
from fkeras.engine.config.serialization import encode
from fkeras.training.checkpoint.storage.arrays import named_leaves
from fkeras.training.records.annotations import Optimizer
from fkeras.transforms.comparison.fingerprinting import digest, function_name, kind_of

#: a longer list of numbers (a matrix in a configuration) is replaced by its digest
_LONGEST = 64
# Memory addresses in the `repr` of functions differ between processes.
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def model_fingerprint(model: Layer) -> dict[str, Any]:
    """Returns the fingerprint of a model: its layers, weight shapes and configuration.

    Args:
        model: a built layer or network; the values of the weights are not a part of the
            fingerprint.

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
        # The config holds a value without a JSON form, such as a lambda: only the names and
        # shapes of the weights identify the model.
        config = {"class_name": type(model).__name__, "config": {"no_json": type(error).__name__}}
    facts = {"class": config["class_name"], **_config_of(config["config"])}
    layers = facts.get("layers", {})
    return {"number_of_layers": len(layers) or 1, "weights": weights, **_with_digest(facts)}


def optimizer_fingerprint(optimizer: Optimizer) -> dict[str, Any]:
    """Returns the fingerprint of an optimizer.

    Args:
        optimizer: a value of `fk.optimizers`, identified by its arguments; or an optax
            transformation, a pair of closures, identified by the structure of its state.

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
    return _with_digest(facts)


def _with_digest(facts: dict[str, Any]) -> dict[str, Any]:
    return {**facts, "digest": digest(facts)}


def _value_of(value: object) -> Any:
    try:
        return _config_of(encode(value))
    except TypeError:
        return function_name(value)


def _config_of(value: object) -> Any:
    """Returns a configuration without None entries, and with lists of layers keyed by name."""
    # Keyed by name, an added layer is one difference; in a list it would shift all later layers.
    if isinstance(value, Mapping):
        if value.keys() >= {"class_name", "config"}:
            config = value["config"]
            inner = _config_of(config) if isinstance(config, Mapping) else {"name": config}
            return {"class": value["class_name"], **inner}
        return {str(k): _config_of(v) for k, v in value.items() if v is not None}
    if isinstance(value, list | tuple):
        entries_by_name = {_name_of(entry): entry for entry in value}
        if value and None not in entries_by_name and len(entries_by_name) == len(value):
            return {name: _config_of(entry) for name, entry in entries_by_name.items()}
        entries = [_config_of(entry) for entry in value]
        if _size(entries) > _LONGEST:
            return f"{_size(entries)} values of digest {digest(entries)}"
        return entries
    return value


def _name_of(value: object) -> str | None:
    config = value.get("config") if isinstance(value, Mapping) else None
    return config.get("name") if isinstance(config, Mapping) else None


def _size(value: object) -> int:
    return sum(map(_size, value)) if isinstance(value, list) else 1


def _state_of(transformation: optax.GradientTransformation) -> str:
    weights = {"kernel": jax.ShapeDtypeStruct((2, 3), "float32")}
    try:
        state = jax.eval_shape(transformation.init, weights)
    except Exception as error:  # masks or labels name the weights of one model
        return f"for weights of its own ({type(error).__name__})"
    leaves = ", ".join(f"{name}: {kind_of(leaf)}" for name, leaf in named_leaves(state).items())
    return _ADDRESS.sub("", f"{jax.tree.structure(state)} with {leaves or 'no arrays'}")
