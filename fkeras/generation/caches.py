"""States of generation: batch axes, capacity, and rollback of the last tokens.

A state with KV caches is the state of a model from `init_cache(batch, length)`. In each layer, `length`
counts the tokens of each row, and `positions` holds the position of each cached token, -1 for an empty
place. The state of a model without caches has the tokens: `ids`, `length`, and the model's state under
`model`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from fkeras.authoring.engine import Tree
from fkeras.engine import Network

State: TypeAlias = dict[str, Any]


def new_state(
    model: Network, cached: bool, own: Mapping[str, Any], batch: int, capacity: int, slack: int
) -> State:
    """Returns the state before the first token.

    Args:
        own: the state of the model without caches.
        slack: the maximum number of tokens of a rollback.
    """
    if cached:
        return merged(model.init_cache(batch, capacity, slack=slack), own)
    ids = jnp.zeros((batch, capacity), jnp.int32)
    return {"model": dict(own), "ids": ids, "length": jnp.zeros(batch, jnp.int32)}


def merged(state: Mapping[str, Any], own: Mapping[str, Any]) -> State:
    """Returns `state` with the entries of `own`, which replace entries of the same name."""
    result = dict(state)
    for name, value in own.items():
        old = result.get(name)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            result[name] = merged(old, value)
        else:
            result[name] = value
    return result


def state_specs(model: Network, *size: int, **slack: int) -> Any:
    """Returns the shapes of `model.init_cache(*size, **slack)`, of `model.init_state()` without a size."""
    leaves, structure = jax.tree.flatten(model)
    shapes = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
    return _state_specs(structure, shapes, size, **slack)


# cached: each `generate` needs the specs several times
@functools.lru_cache(maxsize=64)
def _state_specs(structure: Any, shapes: tuple, size: tuple[int, ...], slack: int = 0) -> Any:
    model = structure.unflatten([jax.ShapeDtypeStruct(*shape) for shape in shapes])
    options = {"slack": slack} if slack else {}
    make = model.init_cache if size else model.init_state
    return jax.eval_shape(lambda: make(*size, **options))


def row_axes(model: Network) -> Any:
    """Returns the batch axis of each leaf of a state with caches, -1 for a leaf without a batch axis."""
    # two batch sizes: the axis whose size differs is the batch axis
    small, large = (state_specs(model, batch, 8) for batch in (3, 5))

    def axis(small: Any, large: Any) -> int:
        pairs = enumerate(zip(small.shape, large.shape, strict=True))
        return next((axis for axis, (a, b) in pairs if a != b), -1)

    return jax.tree.map(axis, small, large)


def enlarged(state: State, larger: State) -> State:
    """Returns a state with the size of `larger`, a state without tokens, and the tokens of `state`.

    Tokens keep their slots: the state has had room for all of them, so no ring has begun again.
    """

    def leaf(old: jax.Array, new: jax.Array) -> jax.Array:
        if old.shape == new.shape:
            return old
        return jax.lax.dynamic_update_slice(new, old, (0,) * old.ndim)

    return jax.tree.map(leaf, state, larger)


def map_rows(function: Callable[[jax.Array, int], jax.Array], state: State, axes: Any) -> State:
    """Returns the state with `function(leaf, axis)` in place of each leaf with a batch axis."""
    return jax.tree.map(lambda leaf, axis: leaf if axis < 0 else function(leaf, axis), state, axes)


def take_rows(state: State, axes: Any, index: jax.Array) -> State:
    """Returns the state of selected rows."""
    return map_rows(lambda leaf, axis: jnp.take(leaf, index, axis=axis), state, axes)


def has_lengths_only(state: State, axes: Any) -> bool:
    """Returns whether the state supports a rollback: each leaf is a length or belongs to a KV cache."""

    def check(state: Any, axes: Any, inside: bool) -> bool:
        inside = inside or "positions" in state or "ids" in state
        return all(
            check(value, axes[name], inside)
            if isinstance(value, Mapping)
            else axes[name] < 0 or inside or name == "length"
            for name, value in state.items()
        )

    return check(state, axes, False)


def take_back(state: State, count: jax.Array) -> State:
    """Rolls back the last `count` (b,) tokens of each row."""
    if "ids" in state:
        return {**state, "length": state["length"] - count}
    lengths = lengths_of(state)
    return state if lengths is None else _shortened(state, lengths - count)


def lengths_of(state: Tree) -> jax.Array | None:
    """Returns the number of tokens of each row in a state with caches; None without."""
    # the maximum: layers of an encoder have lengths too, which stay 0
    counts = [*_lengths(state)]
    return functools.reduce(jnp.maximum, counts) if counts else None


def _lengths(state: Tree) -> Iterator[jax.Array]:
    for name, value in state.items():
        if isinstance(value, Mapping):
            yield from _lengths(value)
        elif name == "length":
            yield value


def _shortened(state: State, lengths: jax.Array) -> State:
    def entry(name: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return _shortened(dict(value), lengths)
        if name == "length":
            return jnp.minimum(value, lengths)
        if name == "positions" and "keys" in state:
            return jnp.where(value < lengths[:, None], value, -1)
        return value

    return {name: entry(name, value) for name, value in state.items()}


def capacity_of(model: Network, state: State) -> int | None:
    """Returns the capacity of the caches in tokens; None if all caches are ring buffers."""
    sizes = _sizes(state)
    if not sizes:
        return None
    longest = max(sizes.values())
    # the size of a ring buffer does not depend on the length
    grown = _sizes(state_specs(model, 1, 2 * longest + 2))
    limits = [size for path, size in sizes.items() if grown.get(path, 0) > longest]
    return min(limits, default=None)


def can_take_back(model: Network, state: State, count: int) -> bool:
    """Returns whether a rollback of `count` tokens leaves all tokens of the windows in the ring buffers."""
    sizes = _sizes(state)
    length = 2 * max(sizes.values(), default=0) + count + 2
    rings = _sizes(state_specs(model, 1, length))
    larger = _sizes(state_specs(model, 1, length, slack=count))
    return not any(rings.get(path, 0) <= size < larger.get(path, 0) for path, size in sizes.items())


def ring_slack(model: Network, state: State) -> int | None:
    """Returns the slack with which the state's ring buffers were made; None if there is no such number."""
    sizes = _sizes(state)
    length = 2 * max(sizes.values(), default=0) + 2
    bases = _sizes(state_specs(model, 1, length))
    # a smaller buffer has not begun again: its tokens keep their slots in a larger buffer
    slacks = {size - bases[path] for path, size in sizes.items() if bases.get(path, length) <= size}
    return None if len(slacks) > 1 else max(slacks, default=0)


def _sizes(state: Any, path: str = "") -> dict[str, int]:
    sizes: dict[str, int] = {}
    for name, value in state.items():
        if isinstance(value, Mapping):
            sizes.update(_sizes(value, f"{path}/{name}"))
        elif name == "positions":
            sizes[path] = value.shape[1]
    return sizes
