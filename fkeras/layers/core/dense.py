"""`Dense`: an affine map of the last axis."""

from __future__ import annotations

from typing import ClassVar, Self

import jax
import jax.numpy as jnp

from fkeras import activations, constraints, initializers, regularizers
from fkeras.engine import InputSpec, Layer, option, weight
from fkeras.engine.config.converters import boolean, integer
from fkeras.engine.config.field_types import (
    Activation,
    Constraint,
    Initializer,
    Integer,
    Regularizer,
)
from fkeras.engine.layer.keras_form import KerasForm
from fkeras.engine.tree.axes import AxisNames
from fkeras.engine.values.spec import SpecLike
from fkeras.layers.common.axis_roles import hidden_of
from fkeras.nn.cpu.broadcasting import for_rows


def dense(x: jax.Array, kernel: jax.Array, bias: jax.Array | None = None) -> jax.Array:
    """Computes `x @ kernel + bias` over the last axis of `x`.

    Args:
        x: array of shape (b, ..., d).
        kernel: array of shape (d, u).
        bias: array of shape (u,), or None.

    Returns:
        An array of shape (b, ..., u).

    Example:
        >>> import jax.numpy as jnp
        >>> dense(jnp.ones((1, 3)), jnp.ones((3, 2)), jnp.ones(2))
        Array([[4., 4.]], dtype=float32)
    """
    # integer inputs (one-hot rows, counts) compute in the kernel's dtype, as in Keras; without the
    # cast, strict dtype promotion rejects the product
    if not jnp.issubdtype(x.dtype, jnp.inexact):
        x = x.astype(kernel.dtype)
    y = jnp.tensordot(x, kernel, axes=1)
    return y if bias is None else y + for_rows(bias, y)


class Dense(Layer):
    """Computes `activation(x @ kernel + bias)` over the last axis.

    Args:
        units: size `u` of the output's last axis.
        activation: activation function or its name; None is the identity.
        use_bias: whether to add a bias.
        kernel_initializer: draws the kernel.
        bias_initializer: draws the bias.
        kernel_regularizer: penalty on the kernel.
        bias_regularizer: penalty on the bias.
        activity_regularizer: penalty on the output, divided by the batch size.
        kernel_constraint: projection of the kernel after each update.
        bias_constraint: projection of the bias after each update.

    Shapes:
        (b, ..., d) -> (b, ..., u); kernel (d, u), bias (u,).

    Raises:
        ValueError: where `units` is not a positive integer, or the size of the input's last axis is
            unknown or differs from the size that the kernel was built for.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.Dense(2, activation="relu", kernel_initializer="ones")
        >>> layer = layer.build(jax.random.key(0), (None, 3))
        >>> layer(jnp.ones((1, 3)))
        Array([[3., 3.]], dtype=float32)
    """

    _keras_form: ClassVar[KerasForm] = KerasForm(
        training_default=None, quantized_as="QuantizedDense"
    )

    units: Integer = option(convert=integer(minimum=1))
    activation: Activation = option(default=None, convert=activations.get)
    use_bias: bool = option(default=True, convert=boolean)
    kernel_initializer: Initializer = option(default="glorot_uniform", convert=initializers.get)
    bias_initializer: Initializer = option(default="zeros", convert=initializers.get)
    kernel_regularizer: Regularizer = option(default=None, convert=regularizers.get)
    bias_regularizer: Regularizer = option(default=None, convert=regularizers.get)
    activity_regularizer: Regularizer = option(default=None, convert=regularizers.get)
    kernel_constraint: Constraint = option(default=None, convert=constraints.get)
    bias_constraint: Constraint = option(default=None, convert=constraints.get)

    kernel: jax.Array = weight(axes="io")
    bias: jax.Array | None = weight(axes="o")

    supports_masking: ClassVar[bool] = True

    @property
    def axis_names(self) -> AxisNames:
        # the wider axis is hidden: see `hidden`
        return AxisNames(roles=hidden_of(self.kernel, "io"), output="...o")

    @property
    def input_spec(self) -> InputSpec:
        # an unbuilt layer accepts any size; the kernel then fixes the size
        axes = {} if self.kernel is None else {-1: self.kernel.shape[0]}
        return InputSpec(min_ndim=2, axes=axes)

    def build(self, key: jax.Array, x: SpecLike) -> Self:
        bias = (self.units,) if self.use_bias else None
        return self.with_weights(key, kernel=(x.shape[-1], self.units), bias=bias)

    def call(self, x: jax.Array) -> jax.Array:
        y = dense(x, self.kernel, self.bias)
        return y if self.activation is None else self.activation(y)
