"""Application of an optimizer's rule for one weight to a tree of weights.

The order of an update: divide the gradients by the loss scale, accumulate them, clip them, apply
weight decay and the optimizer's step, update the moving average of the weights.

State and arithmetic are float32 even for weights of lower precision; only the resulting update has
the weight's dtype. The state keeps its structure and dtypes, so `jax.lax.scan` can carry it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from fkeras.optimizers.updates.averaging import average_step
from fkeras.optimizers.updates.clipping import clip_global_norm, clip_norm
from fkeras.optimizers.updates.numeric import working_dtype, zeros
from fkeras.optimizers.updates.paths import flatten
from fkeras.optimizers.updates.state import ACCUMULATOR, AVERAGE, OptimizerState

_Rows = list[dict[str, jax.Array]]


def init(optimizer: Any, weights: optax.Params) -> OptimizerState:
    """Returns the state of an `Optimizer` before the first step.

    Raises:
        ValueError: if a slot has the name of a slot that an option of `Optimizer` adds.
    """
    paths, leaves, structure = flatten(weights)
    leaves = [jnp.asarray(w) for w in leaves]
    rows = [optimizer._slots_at(path, w) for path, w in zip(paths, leaves, strict=True)]
    # a slot that only some weights have is None for the others, which JAX drops from the tree
    slots = {n: [row.get(n) for row in rows] for n in dict.fromkeys(n for r in rows for n in r)}
    for name in [n for n in _options(optimizer) if n in slots]:
        raise ValueError(
            f"{type(optimizer).__name__}: the slot name {name!r} is reserved for an option of "
            "Optimizer. Use another name."
        )
    if optimizer.gradient_accumulation_steps:
        slots[ACCUMULATOR] = [zeros(w) for w in leaves]
    # copies: jit may donate weights and state, and a buffer can be donated only once
    if optimizer.use_ema:
        slots[AVERAGE] = [jnp.array(w, working_dtype(w)) for w in leaves]
    rate, decay = optimizer.learning_rate, optimizer.weight_decay
    return OptimizerState(
        count=jnp.zeros((), "int32"),
        learning_rate=None if callable(rate) else jnp.asarray(rate, "float32"),
        slots={name: jax.tree.unflatten(structure, values) for name, values in slots.items()},
        weight_decay=None if decay is None else jnp.asarray(decay, "float32"),
    )


def update(
    optimizer: Any,
    gradients: optax.Updates,
    state: OptimizerState,
    weights: optax.Params | None = None,
) -> tuple[Any, OptimizerState]:
    """Returns `(deltas, state)`: the updates to add to the weights, and the new state.

    Args:
        weights: the weights; may be None for an optimizer that does not read the weights.

    Raises:
        ValueError: if the optimizer reads the weights and `weights` is None.
    """
    needed = optimizer.reads_weights or optimizer.use_ema or optimizer.weight_decay is not None
    if weights is None and needed:
        raise ValueError(
            f"{type(optimizer).__name__}: missing weights, which the step depends on. Call "
            "update(gradients, state, weights)."
        )
    paths, leaves, structure = flatten(gradients)
    leaves = [jnp.asarray(g) for g in leaves]
    # without weights, the gradients provide shapes and dtypes; their values are not used as weights
    weight_leaves = leaves if weights is None else structure.flatten_up_to(weights)
    weight_leaves = [jnp.asarray(w) for w in weight_leaves]
    leaves = [g.astype(working_dtype(g)) for g in leaves]
    if optimizer.loss_scale_factor is not None:
        leaves = [g / optimizer.loss_scale_factor for g in leaves]
    slots = {name: structure.flatten_up_to(tree) for name, tree in state.slots.items()}
    option_slots = {name: slots.pop(name) for name in _options(optimizer)}
    rows = [{n: v[i] for n, v in slots.items() if v[i] is not None} for i in range(len(leaves))]

    every = optimizer.gradient_accumulation_steps
    iteration = state.count // every if every else state.count

    def step(gradients: list, rows: _Rows) -> tuple[list, _Rows]:
        return _step(optimizer, state, iteration, paths, weight_leaves, gradients, rows)

    if every:
        gradient_sums = [
            g + sum_ for g, sum_ in zip(leaves, option_slots[ACCUMULATOR], strict=True)
        ]
        is_due = (state.count + 1) % every == 0
        deltas, rows, option_slots[ACCUMULATOR] = _when_due(
            step, is_due, every, weight_leaves, gradient_sums, rows
        )
    else:
        deltas, rows = step(leaves, rows)
    if optimizer.use_ema:
        options = (optimizer.ema_momentum, iteration, optimizer.ema_overwrite_frequency)
        triples = zip(option_slots[AVERAGE], weight_leaves, deltas, strict=True)
        pairs = [average_step(*triple, *options) for triple in triples]
        option_slots[AVERAGE], deltas = (
            [average for average, _ in pairs],
            [delta for _, delta in pairs],
        )

    values = {name: [row.get(name) for row in rows] for name in slots} | option_slots
    trees = {name: jax.tree.unflatten(structure, values[name]) for name in state.slots}
    # a plain sum, unlike _next: XLA can merge it with the counter of an enclosing loop
    count = state.count + 1
    return jax.tree.unflatten(structure, deltas), state._replace(count=count, slots=trees)


def _options(optimizer: Any) -> list[str]:
    """Returns the names of the slots that the optimizer's options add."""
    options = {ACCUMULATOR: optimizer.gradient_accumulation_steps, AVERAGE: optimizer.use_ema}
    return [name for name, is_active in options.items() if is_active]


def _step(
    optimizer: Any,
    state: OptimizerState,
    iteration: jax.Array,
    paths: tuple[str, ...],
    weights: list,
    gradients: list,
    rows: _Rows,
) -> tuple[list, _Rows]:
    """Returns the deltas and the new slots of all weights."""
    current = state.learning_rate
    if current is None:
        current = jnp.asarray(optimizer.learning_rate(state.count)).astype("float32")
    count = _next(iteration)
    shared = {}
    deltas, new_rows = [], []
    for path, weight, gradient, row in zip(
        paths, weights, _clip(optimizer, gradients), rows, strict=True
    ):
        dtype = working_dtype(weight)
        if dtype not in shared:  # scalars, computed once for all weights of a dtype
            rate, number = current.astype(dtype), count.astype(dtype)
            decay = None if state.weight_decay is None else rate * state.weight_decay.astype(dtype)
            shared[dtype] = rate, decay, number, optimizer.prepare(rate, number)
        rate, decay, number, prepared = shared[dtype]
        wide_weight, decay_share = (
            weight.astype(dtype),
            optimizer._decay_at(path, weight, rate, decay),
        )
        decay_part = None if decay_share is None else decay_share * wide_weight
        decayed_weight = wide_weight if decay_part is None else wide_weight - decay_part
        delta, slots = optimizer.step(gradient.astype(dtype), decayed_weight, row, prepared, number)
        delta = delta if decay_part is None else delta - decay_part
        deltas.append(delta.astype(weight.dtype))
        # a user's `step` may change a dtype, which lax.scan rejects in a carry
        new_rows.append({name: slots[name].astype(row[name].dtype) for name in row})
    return deltas, new_rows


def _next(iteration: jax.Array) -> jax.Array:
    """Returns the next integer, saturating at the maximum of the dtype instead of wrapping."""
    number = iteration + 1
    return jnp.where(number > 0, number, jnp.full_like(number, jnp.iinfo(number.dtype).max))


def _when_due(
    step: Callable, due: jax.Array, every: int, weights: list, gradient_sums: list, rows: _Rows
) -> tuple[list, _Rows, list]:
    """Returns `(deltas, slots, gradients)`: a step with the mean gradient if due, else zeros."""

    def move(gradient_sums: list, rows: _Rows) -> tuple[list, _Rows, list]:
        deltas, rows = step([g / every for g in gradient_sums], rows)
        return deltas, rows, [jnp.zeros_like(g) for g in gradient_sums]

    def wait(gradient_sums: list, rows: _Rows) -> tuple[list, _Rows, list]:
        return [jnp.zeros_like(w) for w in weights], rows, gradient_sums

    # lax.cond skips the step's computation; jnp.where would compute the step for every batch
    return jax.lax.cond(due, move, wait, gradient_sums, rows)


def _clip(optimizer: Any, gradients: list[jax.Array]) -> list[jax.Array]:
    if optimizer.clipnorm is not None:
        return [clip_norm(g, optimizer.clipnorm) for g in gradients]
    if optimizer.clipvalue is not None:
        limit = optimizer.clipvalue
        return [jnp.clip(g, -limit, limit) for g in gradients]
    if optimizer.global_clipnorm is not None:
        return clip_global_norm(gradients, optimizer.global_clipnorm)
    return gradients
