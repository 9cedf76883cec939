"""`Masking`: marks the steps of a sequence that hold nothing but a padding value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from fkeras.engine import Context, Layer, Output, option
from fkeras.engine.config.converters import real
from fkeras.engine.config.field_types import Real


def find_steps(x: jax.Array, mask_value: float = 0.0) -> jax.Array:
    """Tells for each step whether one of its features differs from `mask_value`.

    Args:
        x: array of shape (b, t, ..., d).
        mask_value: the number that fills the padding.

    Returns:
        A Boolean array of shape (b, t, ...).

    Example:
        >>> import jax.numpy as jnp
        >>> find_steps(jnp.array([[[1.0, 0.0], [0.0, 0.0]]]))
        Array([[ True, False]], dtype=bool)
    """
    return jnp.any(x != jnp.asarray(mask_value, x.dtype), axis=-1)


def both_masks(earlier: jax.Array | None, found: jax.Array | None) -> jax.Array | None:
    """True where both masks are; `earlier` may lack axes at the end, and None stands for True.

    Example:
        >>> import jax.numpy as jnp
        >>> both_masks(jnp.array([[True, False]]), jnp.array([[True, True]]))
        Array([[ True, False]], dtype=bool)
    """
    if earlier is None or found is None:
        return found if earlier is None else earlier
    earlier = jnp.reshape(earlier, (*earlier.shape, *(1,) * (found.ndim - earlier.ndim)))
    return jnp.logical_and(earlier, found)


class Masking(Layer):
    """Masks the steps whose features all equal `mask_value`, and sets these steps to zero.

    A mask that arrives stays in force: a step counts where both masks keep it. (Keras forgets the
    earlier one.)

    Args:
        mask_value: the number that fills the padding.

    Shapes:
        (b, t, ..., d) -> (b, t, ..., d), with a mask of shape (b, t, ...).

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.Masking(mask_value=-1.0)
        >>> layer.apply(jnp.array([[[1.0, 2.0], [-1.0, -1.0]]])).mask
        Array([[ True, False]], dtype=bool)
    """

    mask_value: Real = option(default=0.0, convert=real(infinite=True))

    supports_masking: ClassVar[bool] = True

    def loses_masks(self, masks: Sequence[Any]) -> bool:
        return True  # for its own

    def forward(self, context: Context, x: jax.Array) -> Output:
        found = find_steps(x, self.mask_value)
        y = jnp.where(found[..., None], x, jnp.zeros_like(x))
        return Output(y, mask=both_masks(context.mask, found))
