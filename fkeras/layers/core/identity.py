"""`Identity`: a layer that returns its input."""

from __future__ import annotations

from typing import ClassVar

from fkeras.layers.common import authoring as fk


class Identity(fk.Layer):
    """Returns its input: an array, or a list or dictionary of arrays.

    Shapes:
        (b, ...) -> (b, ...).

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.Identity()(jnp.ones((1, 2)))
        Array([[1., 1.]], dtype=float32)
    """

    supports_masking: ClassVar[bool] = True

    def forward(self, context: fk.Context, x: fk.Tree) -> fk.Output:
        return fk.Output(x, mask=context.mask)
