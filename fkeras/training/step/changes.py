"""Which arrays of a run a step changes: frozen weights stay where they are, and are never copied."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax

from fkeras.engine import Layer, overwritten_weights, trainable_weights
from fkeras.training.records.state import TrainState


def changed_weights(model: Layer) -> dict[str, Any]:
    """Returns the weights of a model that a step changes, by path."""
    return trainable_weights(model) | overwritten_weights(model)


# Cached: every epoch and every trace asks for the same structure.
@functools.lru_cache(maxsize=64)
def _changes(structure: Any) -> tuple[bool, ...]:
    """Returns for each array of a run whether a step changes it."""
    run = jax.tree.unflatten(structure, range(structure.num_leaves))
    # each call returns a key of its own, as a callback may donate the run that it receives
    values = (
        changed_weights(run.model),
        run.state,
        run.opt_state,
        run.metrics,
        run.step,
        run.key_data,
    )
    changed = set(jax.tree.leaves(values))
    return tuple(number in changed for number in range(structure.num_leaves))


def parted(structure: Any, leaves: Sequence[Any]) -> tuple[tuple, tuple]:
    """Returns `(changed, fixed)`: the arrays of a run that a step changes, and the others.

    Args:
        structure: tree structure of the run.
    """
    pairs = list(zip(leaves, _changes(structure), strict=True))
    changed = tuple(leaf for leaf, changes in pairs if changes)
    return changed, tuple(leaf for leaf, changes in pairs if not changes)


def joined(structure: Any, changed: tuple, fixed: tuple) -> TrainState:
    """Returns the run of arrays from `parted`."""
    parts = iter(fixed), iter(changed)
    return jax.tree.unflatten(structure, [next(parts[changes]) for changes in _changes(structure)])
