"""`ActivityRegularization`: a penalty on the activations."""

from __future__ import annotations

from typing import ClassVar

import jax

from fkeras.layers.common import authoring as fk


class ActivityRegularization(fk.Layer):
    """Returns the input, and adds `(l1 * sum(|x|) + l2 * sum(x²)) / b` to the losses.

    Args:
        l1: weight of the sum of absolute values.
        l2: weight of the sum of squares.

    Shapes:
        (b, ...) -> (b, ...).

    Raises:
        ValueError: for a negative or infinite weight.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.ActivityRegularization(l1=0.5)
        >>> layer.apply(jnp.ones((2, 3))).losses
        (Array(1.5, dtype=float32),)
    """

    l1: fk.Real = fk.option(default=0.0, convert=fk.real(minimum=0))
    l2: fk.Real = fk.option(default=0.0, convert=fk.real(minimum=0))

    supports_masking: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        # report invalid weights when the layer is created, not at the first call
        fk.regularizers.L1L2(l1=self.l1, l2=self.l2)

    @property
    def activity_regularizer(self) -> fk.regularizers.L1L2:
        """Penalty that the engine computes on the output."""
        return fk.regularizers.L1L2(l1=self.l1, l2=self.l2)

    def call(self, x: jax.Array) -> jax.Array:
        return x
