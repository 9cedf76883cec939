"""Layers without weights that keep the shape: activation, identity, penalty on activity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import jax

from fkeras import activations, regularizers
from fkeras.engine import Context, Layer, Output, option


class Activation(Layer):
    """Computes `activation(x)`, element by element or as the function defines it.

    Args:
        activation: a name such as "relu", or a function of one array; None is the identity.

    Shapes:
        (b, ...) -> (b, ...).

    Raises:
        ValueError: for an unknown name, with the nearest one.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.Activation("relu")(jnp.array([[-1.0, 2.0]]))
        Array([[0., 2.]], dtype=float32)
    """

    activation: Callable = option(convert=activations.get)

    supports_masking: ClassVar[bool] = True

    def call(self, x: jax.Array) -> jax.Array:
        return self.activation(x)


class Identity(Layer):
    """Computes nothing: its inputs come back, an array or a list or dictionary of arrays.

    Shapes:
        (b, ...) -> (b, ...).

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.Identity()(jnp.ones((1, 2)))
        Array([[1., 1.]], dtype=float32)
    """

    supports_masking: ClassVar[bool] = True

    def forward(self, context: Context, x: Any) -> Output:
        return Output(x, mask=context.mask)


class ActivityRegularization(Layer):
    """Computes nothing, and adds `(l1 * sum(|x|) + l2 * sum(x²)) / b` to the losses.

    Args:
        l1: the weight of the sum of absolute values.
        l2: the weight of the sum of squares.

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

    l1: float = option(0.0)
    l2: float = option(0.0)

    supports_masking: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        regularizers.L1L2(l1=self.l1, l2=self.l2)

    @property
    def activity_regularizer(self) -> regularizers.L1L2:
        """The penalty that the engine takes of the output."""
        return regularizers.L1L2(l1=self.l1, l2=self.l2)

    def call(self, x: jax.Array) -> jax.Array:
        return x
