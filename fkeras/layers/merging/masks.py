"""Masks of tensors that are merged, and what an invalid step gives to the result.

Of the two rules the first is ours and that of Keras 1 and 2, the second that of Keras since 3.4:

| rule | a step of the result is valid | an input without a mask | what stands in an invalid step |
|---|---|---|---|
| "all" | where it is valid in every input | is valid everywhere | is merged like the rest |
| "any" | where it is valid in some input | takes the mask from the result | is no factor of a product, |
|  |  | (a concatenation's is True then) | and no candidate for a maximum or minimum |
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

Masks = Sequence[jax.Array | None]


def check_masks(where: str, masks: Any, count: int) -> list[jax.Array | None]:
    """The mask (or None) of each of `count` inputs.

    Raises:
        ValueError: for anything but one entry an input.
    """
    if masks is None:
        return [None] * count
    if not isinstance(masks, list | tuple) or len(masks) != count:
        found = f"{len(masks)}" if isinstance(masks, list | tuple) else "one array"
        raise ValueError(
            f"{where}: expected a mask, or None, for each of its {count} inputs, received {found}. "
            "Pass mask=[mask_of_the_first, ...] in the order of the inputs."
        )
    return list(masks)


def aligned(inputs: Sequence[jax.Array], masks: Masks) -> list[jax.Array | None]:
    """The masks with as many axes as the longest input; those that an input lacks follow its batch.

    Example:
        >>> import jax.numpy as jnp
        >>> [m.shape for m in aligned([jnp.ones((2, 3)), jnp.ones((2, 5, 3))], [jnp.ones(2)] * 2)]
        [(2, 1, 1), (2, 1, 1)]
    """
    ndim = max(x.ndim for x in inputs)
    made: list[jax.Array | None] = []
    for x, m in zip(inputs, masks, strict=True):
        if m is not None:
            m = jnp.reshape(m, (*m.shape[:1], *(1,) * (ndim - x.ndim), *m.shape[1:]))
            m = jnp.reshape(m, (*m.shape, *(1,) * (ndim - m.ndim))).astype(bool)
        made.append(m)
    return made


def merge_masks(inputs: Sequence[jax.Array], masks: Masks, rule: str = "all") -> jax.Array | None:
    """True where every mask that is there is True, or, by the rule "any", where some mask is.

    None where there is none, and by the rule "any" also where one is missing.

    Args:
        inputs: the tensors that are merged.
        masks: for each a mask of its leading axes, or None.
        rule: "all" or "any".

    Example:
        >>> import jax.numpy as jnp
        >>> x, mask = jnp.ones((1, 2, 3)), jnp.array([[True, False]])
        >>> merge_masks([x, x], [mask, None])
        Array([[ True, False]], dtype=bool)
        >>> merge_masks([x, x], [mask, ~mask], "any")
        Array([[ True,  True]], dtype=bool)
    """
    ndim = max(x.ndim for x in inputs)
    pairs = list(zip(inputs, masks, strict=True))
    rank = max((m.ndim + ndim - x.ndim for x, m in pairs if m is not None), default=0)
    # what stands after the axes of all masks has size 1
    present = [m.reshape(m.shape[:rank]) for m in aligned(inputs, masks) if m is not None]
    if not present or (rule == "any" and len(present) < len(masks)):
        return None
    return functools.reduce(jnp.logical_and if rule == "all" else jnp.logical_or, present)


def with_ones(inputs: Sequence[jax.Array], masks: Masks) -> list[jax.Array]:
    """Factors with 1 in their invalid steps; the first with 0 where no factor is valid.

    Args:
        inputs: arrays of one rank.
        masks: for each a mask of its leading axes, or None: valid everywhere.

    Example:
        >>> import jax.numpy as jnp
        >>> x, mask = jnp.full((1, 2, 1), 3.0), jnp.array([[True, False]])
        >>> [y.ravel().tolist() for y in with_ones([x, x], [mask, ~mask])]
        [[3.0, 1.0], [1.0, 3.0]]
    """
    placed = aligned(inputs, masks)
    made = [
        x if m is None else jnp.where(m, x, jnp.ones_like(x))
        for x, m in zip(inputs, placed, strict=True)
    ]
    present = [m for m in placed if m is not None]
    if present and len(present) == len(made):
        made[0] = jnp.where(functools.reduce(jnp.logical_or, present), made[0], 0)
    return made


def with_first_valid(inputs: Sequence[jax.Array], masks: Masks) -> list[jax.Array]:
    """Inputs that hold in their invalid steps what the first valid input holds there.

    Where none is valid, what the first input holds.

    Args:
        inputs: arrays of one rank.
        masks: for each a mask of its leading axes, or None: valid everywhere.

    Example:
        >>> import jax.numpy as jnp
        >>> x, mask = jnp.ones((1, 2, 1)), jnp.array([[True, False]])
        >>> [y.ravel().tolist() for y in with_first_valid([x, 2 * x], [mask, ~mask])]
        [[1.0, 2.0], [1.0, 2.0]]
    """
    pairs = list(zip(inputs, aligned(inputs, masks), strict=True))
    if all(m is None for _, m in pairs):
        return list(inputs)
    first = inputs[0]
    for x, m in reversed(pairs):
        first = x if m is None else jnp.where(m, x, first)
    return [x if m is None else jnp.where(m, x, first) for x, m in pairs]


def concatenate_masks(
    inputs: Sequence[jax.Array], masks: Masks, axis: int, rule: str = "all"
) -> jax.Array | None:
    """The mask of tensors that were joined along `axis` (counted from the front).

    Along an axis that the masks have, they are joined like the tensors; along another one, they
    are merged by the rule, an input without a mask valid everywhere.

    Args:
        inputs: the tensors.
        masks: for each a mask of its leading axes, or None.
        axis: the axis along which they were joined.
        rule: "all" or "any".

    Example:
        >>> import jax.numpy as jnp
        >>> x, mask = jnp.ones((1, 2, 3)), jnp.array([[True, False]])
        >>> concatenate_masks([x, x], [mask, None], 1)
        Array([[ True, False,  True,  True]], dtype=bool)
    """
    rank = max((m.ndim for m in masks if m is not None), default=0)
    if rank == 0 or (axis >= rank and rule == "all"):
        return merge_masks(inputs, masks)
    filled = [_filled(x, m, rank) for x, m in zip(inputs, masks, strict=True)]
    if axis >= rank:
        return functools.reduce(jnp.logical_or, filled)
    return jnp.concatenate(filled, axis=axis)


def _filled(x: jax.Array, mask: jax.Array | None, rank: int) -> jax.Array:
    """A mask of the first `rank` axes of `x`."""
    if mask is None:
        return jnp.ones(x.shape[:rank], bool)
    mask = jnp.reshape(mask, (*mask.shape, *(1,) * (rank - mask.ndim)))
    return jnp.broadcast_to(mask, x.shape[:rank])
