"""Masks of merged tensors: two rules for the mask, and for values in invalid steps.

"all" is the default here and the rule of Keras 1 and 2; "any" is the rule of Keras since 3.4:

| rule | a step of the result is valid | an input without a mask | values in invalid steps |
|---|---|---|---|
| "all" | if valid in every input | counts as valid everywhere | are merged like others |
| "any" | if valid in some input | removes the mask of the result | are ignored by products, |
|  |  | (of a concatenation: valid everywhere) | maxima and minima |
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk

Masks = Sequence[jax.Array | None]


def check_masks(where: str, masks: fk.Tree, count: int) -> list[jax.Array | None]:
    """Returns the mask, or None, of each of `count` inputs.

    Raises:
        ValueError: where `masks` is not a list with one entry per input.
    """
    if masks is None:
        return [None] * count
    if not isinstance(masks, list | tuple) or len(masks) != count:
        received = f"{len(masks)}" if isinstance(masks, list | tuple) else "one array"
        raise ValueError(
            f"{where}: expected a mask, or None, for each of its {count} inputs, received {received}. "
            "Pass mask=[mask_of_the_first, ...] in the order of the inputs."
        )
    return list(masks)


def aligned(inputs: Sequence[jax.Array], masks: Masks) -> list[jax.Array | None]:
    """Reshapes the masks to the highest rank among the inputs, with axes of size 1.

    Axes that an input lacks are inserted after the batch axis, as in `with_common_rank`; axes that
    a mask lacks are appended.
    """
    ndim = max(x.ndim for x in inputs)
    reshaped: list[jax.Array | None] = []
    for x, m in zip(inputs, masks, strict=True):
        if m is not None:
            m = jnp.reshape(m, (*m.shape[:1], *(1,) * (ndim - x.ndim), *m.shape[1:]))
            m = jnp.reshape(m, (*m.shape, *(1,) * (ndim - m.ndim))).astype(bool)
        reshaped.append(m)
    return reshaped


def merge_masks(inputs: Sequence[jax.Array], masks: Masks, rule: str = "all") -> jax.Array | None:
    """Returns the conjunction of the present masks, or with the rule "any" the disjunction.

    The result is None if all masks are None; with "any", also if some mask is None.

    Args:
        masks: for each tensor a mask of its leading axes, or None.
        rule: "all" or "any".
    """
    if rule == "any" and any(m is None for m in masks):
        return None
    ndim = max(x.ndim for x in inputs)
    # a mask of several inputs counts once: XLA keeps `mask & mask`, a longer chain with each residual block
    pairs = {(id(m), x.ndim): (x, m) for x, m in zip(inputs, masks, strict=True) if m is not None}
    rank = max((m.ndim + ndim - x.ndim for x, m in pairs.values()), default=0)
    if len(pairs) == 1:
        ((_, mask),) = pairs.values()
        if mask.ndim == rank and mask.dtype == bool:
            return mask
    distinct = [
        m if pairs.pop((id(m), x.ndim), None) else None for x, m in zip(inputs, masks, strict=True)
    ]
    # axes after `rank` have size 1 in every aligned mask: remove them
    present = [m.reshape(m.shape[:rank]) for m in aligned(inputs, distinct) if m is not None]
    if not present:
        return None
    return functools.reduce(jnp.logical_and if rule == "all" else jnp.logical_or, present)


def with_ones(inputs: Sequence[jax.Array], masks: Masks) -> list[jax.Array]:
    """Replaces invalid steps by 1, the neutral factor; by 0 where no input is valid.

    Args:
        masks: for each array a mask of its leading axes, or None for valid everywhere.
    """
    placed = aligned(inputs, masks)
    filled = [
        x if m is None else jnp.where(m, x, jnp.ones_like(x))
        for x, m in zip(inputs, placed, strict=True)
    ]
    # a step that is invalid in every input is 0, as in Keras, and not 1, the empty product
    present = [m for m in placed if m is not None]
    if present and len(present) == len(filled):
        filled[0] = jnp.where(functools.reduce(jnp.logical_or, present), filled[0], 0)
    return filled


def with_first_valid(inputs: Sequence[jax.Array], masks: Masks) -> list[jax.Array]:
    """Replaces invalid steps by the values of the first valid input.

    Where no input is valid, the values of the first input serve.

    Args:
        masks: for each array a mask of its leading axes, or None for valid everywhere.
    """
    pairs = list(zip(inputs, aligned(inputs, masks), strict=True))
    if all(m is None for _, m in pairs):
        return list(inputs)
    # a repeated candidate changes no maximum or minimum; -inf in its place would pass infinities
    # on, and integers have no -inf
    first = inputs[0]
    for x, m in reversed(pairs):
        first = x if m is None else jnp.where(m, x, first)
    return [x if m is None else jnp.where(m, x, first) for x, m in pairs]


def concatenate_masks(
    inputs: Sequence[jax.Array], masks: Masks, axis: int, rule: str = "all"
) -> jax.Array | None:
    """Returns the mask of the concatenation of tensors along `axis`.

    If the masks have this axis, the masks are concatenated too. Otherwise the masks are merged by
    the rule. An input without a mask counts as valid everywhere.

    Args:
        masks: for each tensor a mask of its leading axes, or None.
        rule: "all" or "any".
    """
    rank = max((m.ndim for m in masks if m is not None), default=0)
    if rank == 0 or (axis >= rank and rule == "all"):
        return merge_masks(inputs, masks)
    filled = [_filled(x, m, rank) for x, m in zip(inputs, masks, strict=True)]
    if axis >= rank:
        return functools.reduce(jnp.logical_or, filled)
    return jnp.concatenate(filled, axis=axis)


def _filled(x: jax.Array, mask: jax.Array | None, rank: int) -> jax.Array:
    """Returns a mask with the first `rank` axes of `x`; True everywhere for None."""
    if mask is None:
        return jnp.ones(x.shape[:rank], bool)
    mask = jnp.reshape(mask, (*mask.shape, *(1,) * (rank - mask.ndim)))
    return jnp.broadcast_to(mask, x.shape[:rank])
