"""Dropout masks, forget gate biases and argument rules of gated cells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fkeras.layers.common import authoring as fk
from fkeras.nn.recurrence import draw_mask


def dropout_masks(
    layer: Any, context: fk.Context, x: jax.Array, gates: int
) -> tuple[jax.Array | None, jax.Array | None]:
    """Draws the dropout masks of inputs and state, constant over time; None without dropout.

    Args:
        layer: layer with `units`, `dropout`, `recurrent_dropout`, `seed` and, if gated,
            `implementation`.
        context: context of the call; its key is read only for a draw.
        x: input of shape (b, ..., d).
        gates: number of gates; with `implementation` 1 each gate has separate masks.
    """
    if not context.training or (layer.dropout == 0 and layer.recurrent_dropout == 0):
        return None, None
    # drawn once per sequence, outside of the loop: the same entries are dropped at every step
    key = context.seeded_key(layer.seed)
    # Keras's rule: recurrent dropout always draws separately for each gate
    separate = gates > 1 and (layer.implementation == 1 or layer.recurrent_dropout > 0)
    leading_shape = (gates, x.shape[0]) if separate else (x.shape[0],)

    def draw(name: str, rate: float, size: int) -> jax.Array | None:
        return (
            draw_mask(fk.subkey(key, name), rate, (*leading_shape, size), x.dtype)
            if rate > 0
            else None
        )

    return (
        draw("dropout", layer.dropout, x.shape[-1]),
        draw("recurrent_dropout", layer.recurrent_dropout, layer.units),
    )


def open_forget_gate(key: jax.Array, bias: jax.Array, units: int) -> jax.Array:
    """Sets the forget gate's part of `bias`, the second of four, to ones."""
    # a ShapeKey evaluates shapes only, and then NumPy would allocate arrays of the declared size
    lanes_of = jnp if isinstance(key, fk.ShapeKey | Tracer) else np
    return jnp.where(lanes_of.arange(4 * units) // units == 1, 1.0, bias)


def without_defaults(config: dict[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Removes the keys that Keras's own config omits at their defaults."""
    return {k: v for k, v in config.items() if k not in defaults or v != defaults[k]}


_implementation = fk.integer(
    minimum=0,
    maximum=2,
    hint="With 2 the gates share their dropout masks, with 1 they do not.",
)


def implementation(value: fk.Field) -> int:
    """Accepts 1 and 2, and 0, which Keras 3 computes as 2."""
    return _implementation(value) or 2


use_cudnn = fk.either(fk.choice("auto"), fk.boolean, hint="Leave it out: it has no effect here.")
