"""Rejects a state that does not belong to the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from fkeras.engine import Layer, suggest


def check_model_state(model: Layer, state: object) -> None:
    """Rejects a state with unknown or missing entries, or with arrays of other shapes.

    Raises:
        TypeError: for a state that is not a dictionary.
        ValueError: for an unknown entry, a missing entry, or another shape.
    """
    if not isinstance(state, Mapping):
        raise TypeError(
            f"Trainer.init: state: expected a dictionary, received {type(state).__name__}. Pass "
            "model.init_state(), the state of a file, or run.state."
        )
    expected, arrays = _arrays(model.state_spec()), _arrays(state)
    remedy = "Pass model.init_state(), or the state that belongs to this model."
    for path in arrays:
        if path not in expected:
            entries = ", ".join(expected) or "none, as this model has no state"
            raise ValueError(
                f"Trainer.init: state: unknown entry {path}.{suggest(path, expected)} The entries "
                f"of {model._where} are: {entries}. {remedy}"
            )
    for path, spec in expected.items():
        if path not in arrays:
            raise ValueError(
                f"Trainer.init: state: the entry {path} of {model._where} is missing. {remedy}"
            )
        if jnp.shape(arrays[path]) != spec.shape:
            raise ValueError(
                f"Trainer.init: state: expected shape {spec.shape} for {path}, received "
                f"{jnp.shape(arrays[path])}. {remedy}"
            )


def _arrays(state: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arrays of a state by keys, such as "['norm']['moving_mean']"."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return {jax.tree_util.keystr(keys): leaf for keys, leaf in leaves}
