"""Bytes and operations of a step by call."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.authoring.engine import leaves_of, skeleton_of
from fkeras.authoring.training import layouts
from fkeras.planning.attribution import BETWEEN, LOSS, UPDATE, Calls
from fkeras.planning.request import Request
from fkeras.training import TrainState


class Row(NamedTuple):
    """Bytes and operations of a call; the fields are those of `CallPlan`."""

    name: str
    layer: str
    weights: int
    state: int
    optimizer: int
    activations: int
    flops: float
    communication: int
    cycles: int


class Part(NamedTuple):
    """Bytes or operations that belong to a name stack."""

    scope: str
    amount: float


def device_bytes(asked: Request) -> TrainState:
    """Returns a tree like the run, with the bytes on one device for each array."""
    if asked.trainer.mesh is None:
        return jax.tree.map(lambda leaf: _bytes(leaf.shape, leaf.dtype), asked.run)
    return jax.tree.map(
        lambda leaf, layout: _bytes(layout.shard_shape(leaf.shape), leaf.dtype),
        asked.run,
        layouts(asked.trainer, asked.run),
    )


def _bytes(shape: tuple[int, ...], dtype: Any) -> int:
    is_key = jnp.issubdtype(dtype, jax.dtypes.prng_key)
    return math.prod(shape) * (dtype.itemsize if is_key else np.dtype(dtype).itemsize)


def call_rows(
    calls: Calls,
    sizes: TrainState,
    activations: Iterable[Part],
    flops: Iterable[Part],
    communication: Iterable[Part],
    cycles: Iterable[Part],
) -> list[Row]:
    """Returns a row for each call, and for the loss and the update of the weights.

    Args:
        sizes: the bytes of each array of the run on one device.
    """
    names = [*calls.classes, BETWEEN, LOSS, UPDATE]
    weights, state, optimizer = [dict.fromkeys(names, 0) for _ in range(3)]
    pairs = zip(skeleton_of(sizes.model).names, leaves_of(sizes.model), strict=True)
    weight_sizes = {path: size for path, size in pairs if size is not None}
    for path, size in weight_sizes.items():
        weights[calls.of_path(path)] += size
    for path, size in jax.tree_util.tree_flatten_with_path(sizes.state)[0]:
        keys = "/".join(str(getattr(key, "key", key)) for key in path)
        state[calls.of_path(keys)] += size
    for path, size in jax.tree_util.tree_flatten_with_path(sizes.opt_state)[0]:
        owners = (getattr(key, "key", None) for key in reversed(path))
        owner = next((name for name in owners if name in weight_sizes), None)
        optimizer[UPDATE if owner is None else calls.of_path(owner)] += size
    held, received, times = (
        _integers(calls, parts, names) for parts in (activations, communication, cycles)
    )
    operations = _shares(calls, flops, names)
    if not operations[BETWEEN] and not held[BETWEEN] and not times[BETWEEN]:
        names.remove(BETWEEN)
    return [
        Row(
            name,
            calls.classes.get(name, ""),
            weights[name],
            state[name],
            optimizer[name],
            held[name],
            operations[name],
            received[name],
            times[name],
        )
        for name in names
    ]


def _shares(calls: Calls, parts: Iterable[Part], names: list[str]) -> dict[str, float]:
    """Returns the sum of the parts of each call; calls in a loop have equal shares."""
    shares = dict.fromkeys(names, 0.0)
    for part in parts:
        owners = calls.owners(part.scope)
        for owner in owners:
            shares[owner] += part.amount / len(owners)
    return shares


def _integers(calls: Calls, parts: Iterable[Part], names: list[str]) -> dict[str, int]:
    """Returns the sums of the parts as integers with the same total."""
    total, before, integers = 0.0, 0, {}
    for name, share in _shares(calls, parts, names).items():
        total += share
        integers[name], before = round(total) - before, round(total)
    return integers
