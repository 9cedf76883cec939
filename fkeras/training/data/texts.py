"""Inputs of models that take strings: read on the host, and mapped to the numbers of the device part.

The training of a model with string inputs computes the layers of strings with NumPy, before the first step for arrays and
batch by batch for a source. The compiled steps compute the device part of the model, and the run holds
the whole model.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from fkeras.engine import FKerasError, Layer, Network
from fkeras.engine.call.strings import reads_strings
from fkeras.engine.strings.cut import on_host
from fkeras.engine.strings.host import as_strings, match_texts
from fkeras.engine.strings.network import host_values
from fkeras.engine.values import structure
from fkeras.engine.values.spec import STRING
from fkeras.training.data import host_arrays


def check_labels(y: object, what: str) -> None:
    """Rejects targets that are words; the message shows how to number the classes."""
    for leaf in jax.tree.leaves(y):
        if not _is_string(leaf):
            continue
        words = np.asarray(leaf, object).ravel().tolist()
        word = next((word for word in words if isinstance(word, str | bytes)), None)
        if word is not None:
            raise TypeError(
                f"{what}: expected numbers, received words, such as {word!r}. Number the classes: `lookup "
                "= layers.StringLookup(num_oov_indices=0).adapt(y)`, then `y = lookup(y)`; "
                "`lookup.get_vocabulary()` returns their names."
            )


def takes_strings(model: Layer) -> bool:
    """Returns whether a model has inputs of strings."""
    return isinstance(model, Network) and reads_strings(model)


def as_host(model: Layer, x: Any, what: str) -> Any:
    """Returns inputs as NumPy arrays, as `host_arrays.as_host` does, with the strings of the model.

    Raises:
        FKerasError: for inputs in another structure, and for numbers in the place of strings.
        ValueError: for missing values.
        TypeError: for other values, and for tracers.
    """
    if not isinstance(model, Network) or not reads_strings(model):
        return host_arrays.as_host(x, what)
    if any(isinstance(a, Tracer) for a in jax.tree.leaves(x, is_leaf=host_arrays.is_leaf)):
        raise TypeError(
            f"{what}: expected strings, which exist on the host only, received a tracer of a JAX "
            "transformation. Train the part for the device: `host, device = fk.split_host(model)`, "
            "with the inputs host(x)."
        )
    graph = model.graph
    arrays: dict[int, Any] = {}
    for slot, value in zip(graph.input_slots, match_texts(model, (x,)), strict=True):
        where = f"{what}, input {graph.coords[slot].layer!r}"
        if graph.specs[slot].dtype == STRING:
            arrays[slot] = as_strings(value, where)
        else:
            arrays[slot] = None if value is None else host_arrays.as_host(value, where)
    return structure.fill(graph.inputs, arrays)


def mapped(model: Layer, x: Any) -> Any:
    """Returns the inputs of the device part of a model, from the result of `as_host`."""
    return host_values(model, x)


def numbers(model: Layer, x: Any, what: str) -> Any:
    """Returns the inputs of the device part of a model; `x` itself if `x` holds no strings.

    For functions that also take batches of the device part, such as the batch of a `NonFiniteError`.
    """
    if not takes_strings(model) or not holds_strings(x):
        return x
    return mapped(model, as_host(model, x, what))


def holds_strings(tree: object) -> bool:
    """Returns whether a part of a tree is a string, or an array or column of strings or objects."""
    return any(map(_is_string, jax.tree.leaves(tree)))


def _is_string(leaf: object) -> bool:
    # the dtypes of pandas have a kind, too
    kind = getattr(getattr(leaf, "dtype", None), "kind", "")
    return isinstance(leaf, str | bytes) or (kind != "" and kind in "OSUT")


def check_model(model: Layer, has_objective: bool) -> None:
    """Rejects a model that takes strings and has nothing to train, or an objective that gets strings."""
    if not isinstance(model, Network) or not reads_strings(model):
        return
    if has_objective:
        raise FKerasError(
            f"Trainer.init: an objective computes on the device, and {model._where} takes strings. Train "
            "the part for the device: `host, device = fk.split_host(model)`, with the inputs host(x).",
            layer=model._where,
        )
    if on_host(model):
        raise FKerasError(
            f"Trainer.init: {model._where} computes on the host only, and has nothing to train. Call the model "
            "on the data: model(x). To train, add layers of numbers, such as an Embedding of the ids.",
            layer=model._where,
        )
