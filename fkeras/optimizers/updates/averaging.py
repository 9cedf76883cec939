"""The moving average of the weights in an optimizer's state (`use_ema`)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from fkeras.optimizers.updates.numeric import working_dtype
from fkeras.optimizers.updates.paths import flatten


def average_step(
    average: jax.Array,
    weight: jax.Array,
    delta: jax.Array,
    momentum: float,
    iteration: jax.Array,
    frequency: int | None,
) -> tuple[jax.Array, jax.Array]:
    """Returns `(average, delta)`: the average including the new weight, and the weight's update.

    Args:
        momentum: the share of the current average in the new average; 0 in iteration 0.
        iteration: the number of this iteration, from 0.
        frequency: the number of iterations after which the weight is overwritten by its average;
            None for never.
    """
    dtype = working_dtype(weight)
    new_weight = (weight + delta).astype(dtype)
    # iteration 0 replaces the initial weights, as in Keras
    factor = jnp.where(iteration != 0, jnp.asarray(momentum, dtype), jnp.zeros((), dtype))
    average = factor * average + (1.0 - factor) * new_weight
    if frequency is None:
        return average, delta
    is_due = (iteration + 1) % frequency == 0
    return average, jnp.where(is_due, (average - weight.astype(dtype)).astype(delta.dtype), delta)


def averaged(where: str, average: optax.Params, weights: optax.Params) -> Any:
    """Returns the average with the structure and dtypes of the weights."""
    paths, leaves, structure = flatten(weights)
    average_paths, average_leaves, _ = flatten(average)
    by_path = dict(zip(average_paths, average_leaves, strict=True))
    if by_path.keys() != set(paths):
        unmatched = next(p for p in (*paths, *average_paths) if p not in paths or p not in by_path)
        raise ValueError(
            f"{where}.finalize: expected the weights that this state averages, received other "
            f"weights: {unmatched!r} is not in both. Pass the weights of the last update."
        )
    # a model and the dictionary of its weights have other orders
    cast_leaves = [
        jnp.asarray(by_path[path]).astype(w.dtype) for path, w in zip(paths, leaves, strict=True)
    ]
    return jax.tree.unflatten(structure, cast_leaves)
