"""`Dense`: an affine map of the last axis."""

from __future__ import annotations

from typing import ClassVar, Self

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk
from fkeras.layers.common.axis_roles import hidden_of
from fkeras.layers.core.einsum_dense import add_bias
from fkeras.nn.cpu.products import row_product


def dense(x: jax.Array, kernel: jax.Array, bias: jax.Array | None = None) -> jax.Array:
    """Computes `x @ kernel + bias` over the last axis of `x`.

    Args:
        x: array of shape (b, ..., d).
        kernel: array of shape (d, u).
        bias: array of shape (u,), or None.

    Returns:
        An array of shape (b, ..., u).
    """
    # integer inputs (one-hot rows, counts) compute in the kernel's dtype, as in Keras; without the
    # cast, strict dtype promotion rejects the product
    if not jnp.issubdtype(x.dtype, jnp.inexact):
        x = x.astype(kernel.dtype)
    y = row_product(x, kernel, 1)
    return add_bias(y, bias)


class Dense(fk.Layer):
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

    _keras_form: ClassVar[fk.KerasForm] = fk.KerasForm(
        training_default=None, quantized_as="QuantizedDense"
    )
    # `add_bias` takes the bias in the variable dtype
    _uncast: ClassVar[tuple[str, ...]] = ("bias",)

    units: fk.Integer = fk.option(convert=fk.integer(minimum=1))
    activation: fk.Activation = fk.option(default=None, convert=fk.activation)
    use_bias: bool = fk.option(default=True, convert=fk.boolean)
    kernel_initializer: fk.Initializer = fk.option(default="glorot_uniform", convert=fk.initializer)
    bias_initializer: fk.Initializer = fk.option(default="zeros", convert=fk.initializer)
    kernel_regularizer: fk.Regularizer = fk.option(default=None, convert=fk.regularizer)
    bias_regularizer: fk.Regularizer = fk.option(default=None, convert=fk.regularizer)
    activity_regularizer: fk.Regularizer = fk.option(default=None, convert=fk.regularizer)
    kernel_constraint: fk.Constraint = fk.option(default=None, convert=fk.constraint)
    bias_constraint: fk.Constraint = fk.option(default=None, convert=fk.constraint)

    kernel: jax.Array = fk.weight(axes="io")
    bias: jax.Array | None = fk.weight(axes="o")

    supports_masking: ClassVar[bool] = True

    @property
    def axis_names(self) -> fk.AxisNames:
        # the wider axis is hidden: see `hidden`
        return fk.AxisNames(roles=hidden_of(self.kernel, "io"), output="...o")

    @property
    def input_spec(self) -> fk.InputSpec:
        # an unbuilt layer accepts any size; the kernel then fixes the size
        axes = {} if self.kernel is None else {-1: self.kernel.shape[0]}
        return fk.InputSpec(min_ndim=2, axes=axes)

    def build(self, key: jax.Array, x: fk.SpecLike) -> Self:
        bias = (self.units,) if self.use_bias else None
        return self.with_weights(key, kernel=(x.shape[-1], self.units), bias=bias)

    def call(self, x: jax.Array) -> jax.Array:
        y = dense(x, self.kernel, self.bias)
        return y if self.activation is None else self.activation(y)
