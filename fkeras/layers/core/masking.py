"""`Masking`: masks the steps of a sequence that hold only a padding value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk


def find_steps(x: jax.Array, mask_value: float = 0.0) -> jax.Array:
    """Returns for each step whether any of its features differs from `mask_value`.

    Args:
        x: array of shape (b, t, ..., d).

    Returns:
        A Boolean array of shape (b, t, ...).
    """
    return jnp.any(x != jnp.asarray(mask_value, x.dtype), axis=-1)


def both_masks(earlier: jax.Array | None, later: jax.Array | None) -> jax.Array | None:
    """Returns the conjunction of two masks; None means True everywhere.

    `earlier` may have fewer axes than `later`: it is repeated over the missing axes at the end.
    """
    if earlier is None or later is None:
        return later if earlier is None else earlier
    # trailing axes of size 1: NumPy's broadcasting would align a mask (b,) with the last axis
    earlier = jnp.reshape(earlier, (*earlier.shape, *(1,) * (later.ndim - earlier.ndim)))
    return jnp.logical_and(earlier, later)


class Masking(fk.Layer):
    """Masks the steps whose features all equal `mask_value`, and sets these steps to zero.

    If the input carries a mask, a step is valid where both masks are True. (Keras drops the mask of
    the input.)

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

    mask_value: fk.Real = fk.option(default=0.0, convert=fk.real(infinite=True))

    supports_masking: ClassVar[bool] = True

    def _loses_masks(self, masks: Sequence[Any]) -> bool:
        # Keras's compute_mask ignores the mask of the input
        return True

    def forward(self, context: fk.Context, x: jax.Array) -> fk.Output:
        valid_steps = find_steps(x, self.mask_value)
        # `where`, not a product: a padding value of infinity or NaN times 0 would be NaN
        y = jnp.where(valid_steps[..., None], x, jnp.zeros_like(x))
        return fk.Output(y, mask=both_masks(context.mask, valid_steps))
