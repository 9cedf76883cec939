"""The mask of attention scores: masks of the inputs, an explicit mask and the order of steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk
from fkeras.nn.attention import both, causal_mask, window_mask
from fkeras.nn.attention_blocks import Take, whole
from fkeras.nn.numerics.axes import format_shape


def score_mask(
    where: str,
    query: Sequence[Any],
    value: Sequence[Any],
    axes: tuple[int, ...],
    masks: tuple[Any, Any, Any],
    attention_mask: fk.Mask,
    use_causal_mask: bool,
    sliding_window: int | None,
    take: Take = whole,
) -> jax.Array | None:
    """Combines all masks to one mask with the axes of the scores; None without masks.

    Args:
        masks: the masks (b, t), (b, s) and (b, s) of query, value and key, or None.
        attention_mask: a mask (t, s), (b, t, s) or (b, heads, t, s), or None.
        use_causal_mask: whether step t attends only to the steps up to t.
        sliding_window: number of steps in each direction that a step attends to; None for all.
        take: selects the queries, for one axis of attention.

    Raises:
        ValueError: for an attention mask with other axes, and for several axes of attention whose
            steps must be in order.
    """
    rank = len(query)
    mask = _padding(masks[0], rank, axes, of_keys=False)
    mask = None if mask is None else take(mask, mask.ndim - 2)
    mask = both(mask, _padding(masks[1], rank, axes, of_keys=True))
    mask = both(mask, _padding(masks[2], rank, axes, of_keys=True))
    explicit = explicit_mask(where, attention_mask, rank, len(axes))
    mask = both(mask, None if explicit is None else take(explicit, explicit.ndim - 2))
    return both(mask, _order(where, query, value, axes, use_causal_mask, sliding_window, take))


def as_booleans(mask: jax.Array) -> jax.Array:
    """Returns a mask of Booleans, or of numbers that are 0 where a step is masked, as Booleans."""
    return mask if mask.dtype == jnp.bool_ else mask != 0


def _order(
    where: str,
    query: Sequence[Any],
    value: Sequence[Any],
    axes: tuple[int, ...],
    use_causal_mask: bool,
    sliding_window: int | None,
    take: Take,
) -> jax.Array | None:
    """Returns the mask of the order of steps: causal, and limited to the window."""
    if not use_causal_mask and sliding_window is None:
        return None
    if len(axes) != 1:
        raise ValueError(
            f"{where}: expected one attention axis with use_causal_mask or "
            f"sliding_window, which depend on the order of steps, received the axes {axes}. "
            "Set attention_axes to the time axis, or give an attention_mask."
        )
    sizes = query[axes[0]], value[axes[0]]
    mask = causal_mask(*sizes, take) if use_causal_mask else None
    if sliding_window is not None:
        mask = both(mask, window_mask(*sizes, sliding_window, take))
    assert mask is not None
    return jnp.reshape(mask, (*(1,) * (len(query) - 1), *mask.shape))


def _padding(mask: fk.Tree, rank: int, axes: tuple[int, ...], of_keys: bool) -> jax.Array | None:
    """Reshapes the mask (b, t) of queries or (b, s) of keys to the axes of the scores."""
    if mask is None:
        return None
    sizes = [*mask.shape, *(1,) * (rank - 1 - mask.ndim)]
    batch_sizes = [n for i, n in enumerate(sizes) if i not in axes]
    mask = jnp.reshape(as_booleans(mask), sizes)
    mask = jnp.moveaxis(mask, axes, range(mask.ndim - len(axes), mask.ndim))
    step_sizes, ones = [sizes[a] for a in axes], [1] * len(axes)
    return jnp.reshape(
        mask, (*batch_sizes, 1, *(ones + step_sizes if of_keys else step_sizes + ones))
    )


def explicit_mask(where: str, mask: Any, rank: int, attended: int) -> Any:
    """Reshapes a mask (t, s), (b, t, s) or (b, heads, t, s) to the axes of the scores; None for None.

    Args:
        rank: number of axes of the query before its projection.
        attended: number of axes of attention.

    Raises:
        ValueError: for a mask with other axes.
    """
    if mask is None:
        return None
    score_rank, min_rank = rank + attended, 2 * attended
    if not min_rank <= mask.ndim <= score_rank:
        raise ValueError(
            f"{where}: expected an attention_mask with {min_rank} to {score_rank} axes, such as (b, t, s), "
            f"received {format_shape(mask.shape)}. Its last axes are those of queries and keys."
        )
    mask = as_booleans(mask)
    leading_sizes = mask.shape[: mask.ndim - min_rank]
    step_sizes = mask.shape[mask.ndim - min_rank :]
    return jnp.reshape(mask, (*leading_sizes, *(1,) * (score_rank - mask.ndim), *step_sizes))
