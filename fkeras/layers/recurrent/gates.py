"""What the steps of the gated cells share: dropout masks, and products gate by gate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from fkeras.engine import Context, subkey
from fkeras.engine.config.converters import boolean, choice, either, integer


def draw_mask(key: jax.Array, rate: float, shape: tuple, dtype: Any) -> jax.Array:
    """Zeros with probability `rate`, and `1 / (1 - rate)` elsewhere.

    Example:
        >>> import jax
        >>> mask = draw_mask(jax.random.key(0), 0.5, (4, 4), "float32")
        >>> sorted(set(mask.ravel().tolist()))
        [0.0, 2.0]
    """
    if rate >= 1:
        return jnp.zeros(shape, dtype)
    keep = jax.random.bernoulli(key, 1 - rate, shape)
    return keep.astype(dtype) / (1 - rate)


def dropout_masks(
    layer: Any, context: Context, x: jax.Array, gates: int
) -> tuple[jax.Array | None, jax.Array | None]:
    """The dropout masks of a cell for inputs and state, constant over time; None for no dropout.

    Args:
        layer: has `units`, `dropout`, `recurrent_dropout`, `seed` and, with gates, `implementation`.
        context: the call's; its key is read only where something is drawn.
        x: the input, of shape (b, ..., d).
        gates: the number of gates; with `implementation` 1 each gate has masks of its own.
    """
    if not context.training or (layer.dropout == 0 and layer.recurrent_dropout == 0):
        return None, None
    key = context.key if layer.seed is None else subkey(context.key, layer.seed)
    apart = gates > 1 and (layer.implementation == 1 or layer.recurrent_dropout > 0)
    lead = (gates, x.shape[0]) if apart else (x.shape[0],)

    def draw(name: str, rate: float, size: Any) -> jax.Array | None:
        return draw_mask(subkey(key, name), rate, (*lead, size), x.dtype) if rate > 0 else None

    return (
        draw("dropout", layer.dropout, x.shape[-1]),
        draw("recurrent_dropout", layer.recurrent_dropout, layer.units),
    )


def masked_matmul(x: jax.Array, kernel: jax.Array, mask: jax.Array | None) -> jax.Array:
    """Computes `(x * mask) @ kernel`; a mask (gates, b, d) has an own entry for each gate.

    Args:
        x: array of shape (b, d).
        kernel: array of shape (d, gates * u).
        mask: None, or an array of shape (b, d) or (gates, b, d).

    Example:
        >>> import jax.numpy as jnp
        >>> mask = jnp.array([[[1.0]], [[0.0]]])
        >>> masked_matmul(jnp.ones((1, 1)), jnp.array([[2.0, 3.0]]), mask)
        Array([[2., 0.]], dtype=float32)
    """
    if mask is None:
        return x @ kernel
    if mask.ndim == x.ndim:
        return (x * mask) @ kernel
    parts = jnp.split(kernel, mask.shape[0], axis=-1)
    return jnp.concatenate([(x * m) @ k for m, k in zip(mask, parts, strict=True)], axis=-1)


def without_defaults(config: dict[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration without the keys that Keras's own configuration leaves out at their defaults."""
    return {k: v for k, v in config.items() if k not in defaults or v != defaults[k]}


implementation = integer(
    minimum=1,
    maximum=2,
    hint="It decides whether the gates share their dropout masks (2) or not (1).",
)


use_cudnn = either(choice("auto"), boolean, hint="Leave it out: it has no effect here.")
