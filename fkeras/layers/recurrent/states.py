"""States of recurrent layers: lists of arrays with the batch as the first axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk
from fkeras.nn.numerics.axes import may_equal


def zero_states(sizes: int | Sequence[int], batch: fk.Tree, dtype: str) -> list[jax.Array]:
    """Returns zeros of shape (b, size) for each size."""
    size_list = [sizes] if isinstance(sizes, int) else sizes
    shapes = [(n,) if isinstance(n, int) else tuple(n) for n in size_list]
    return [jnp.zeros((batch, *shape), dtype) for shape in shapes]


def convert_initial_state(where: str, initial_state: fk.Tree, like: fk.Tree) -> fk.Tree:
    """Converts the caller's `initial_state` to the structure and dtypes of the layer's states.

    Raises:
        ValueError: for a wrong number of states, or a wrong shape.
    """
    expected, structure = jax.tree.flatten(like)
    received = jax.tree.leaves(initial_state)
    if len(received) != len(expected):
        raise ValueError(
            f"{where}: expected {len(expected)} states in initial_state, of shapes "
            f"{_shapes(expected)}, received {len(received)}, of shapes {_shapes(received)}. Pass "
            "one array (or tensor) for each state, in a list."
        )
    for index, (received_state, expected_state) in enumerate(zip(received, expected, strict=True)):
        if len(received_state.shape) != len(expected_state.shape) or not may_equal(
            received_state.shape[1:], expected_state.shape[1:]
        ):
            raise ValueError(
                f"{where}: expected initial_state[{index}] of shape {fk.as_spec(expected_state)}, received "
                f"{fk.as_spec(received_state)}. A state has the batch first and then the cell's state_size."
            )
        _check_batch(where, f"initial_state[{index}]", received_state, expected_state)
    arrays = [jnp.asarray(h).astype(w.dtype) for h, w in zip(received, expected, strict=True)]
    return jax.tree.unflatten(structure, arrays)


def as_state(states: fk.Tree, dtype: str) -> dict[str, jax.Array]:
    """Stores the carry of a stateful layer as its state: a dictionary of arrays."""
    leaves = jax.tree.leaves(states)
    # numbered keys, because the states of nested cells have no names
    return {f"state_{i}": leaf.astype(dtype) for i, leaf in enumerate(leaves)}


def from_state(where: str, state: Mapping[str, jax.Array], like: fk.Tree) -> fk.Tree:
    """Restores the states that `as_state` stored, with the structure and dtypes of `like`."""
    expected, structure = jax.tree.flatten(like)
    stored = [state[f"state_{i}"] for i in range(len(expected))]
    for stored_state, expected_state in zip(stored, expected, strict=True):
        _check_batch(where, "the state", stored_state, expected_state)
    return jax.tree.unflatten(
        structure, [h.astype(w.dtype) for h, w in zip(stored, expected, strict=True)]
    )


def _check_batch(where: str, state_name: str, state: fk.Tree, expected: fk.Tree) -> None:
    b, n = state.shape[0], expected.shape[0]
    # symbolic sizes stand for any batch: only two known sizes can be compared
    if isinstance(b, int) != isinstance(n, int):
        known_size, unknown_part = (b, "the sequences") if isinstance(b, int) else (n, state_name)
        raise ValueError(
            f"{where}: {state_name} is for {b} samples, received {n} samples; the batch size of "
            f"{unknown_part} is not known yet. Give it: fk.Input(..., batch_size={known_size}); or "
            "leave both unknown, with a separate fk.Input for the state."
        )
    if isinstance(b, int) and b != n:
        raise ValueError(
            f"{where}: {state_name} is for {b} samples, received {n} samples. Each sample has a "
            f"separate state, carried from call to call: pass batches of {b} samples (a total "
            f"number divisible by {b}), or a state for {n} samples, as from init_state."
        )


def _shapes(arrays: Sequence[Any]) -> str:
    return ", ".join(str(fk.as_spec(a)) for a in arrays) or "none"
