"""Layers that models of `keras.applications` bring with them: those of ConvNeXt and Inception-ResNet.

Keras has no public names for them and finds them by their place in its sources, which files note.
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax

from fkeras import initializers
from fkeras.engine import Context, Layer, Output, align, option, weight
from fkeras.engine.config.converters import integer, probability, real
from fkeras.engine.config.field_types import Integer, Real
from fkeras.engine.layer.keras_form import KerasForm
from fkeras.engine.tree.axes import AxisNames
from fkeras.layers.merging.elementwise import check_list
from fkeras.nn.noise import dropout

__all__ = ("CustomScaleLayer", "LayerScale", "StochasticDepth")


class StochasticDepth(Layer):
    """Zeroes whole examples at random in training; computes nothing in inference.

    The other examples are divided by `1 - drop_path_rate`. Before a residual sum, a zeroed example
    skips the branch.

    Args:
        drop_path_rate: the share of examples to drop, from 0 to 1.

    Shapes:
        (b, ...) -> (b, ...).

    Raises:
        ValueError: for a rate outside of [0, 1]; in training without a key.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> y = StochasticDepth(0.5)(jnp.ones((8, 2)), training=True, key=jax.random.key(0))
        >>> sorted({tuple(row) for row in y.tolist()})
        [(0.0, 0.0), (2.0, 2.0)]

    References:
        Huang et al., 2016, Deep networks with stochastic depth, https://arxiv.org/abs/1603.09382
    """

    drop_path_rate: Real = option(convert=probability)

    keras_module: ClassVar[str] = "keras.src.applications.convnext"
    _keras_form: ClassVar[KerasForm] = KerasForm(training_default=None)

    def forward(self, context: Context, x: jax.Array) -> Output:
        if not context.training or self.drop_path_rate == 0:
            return Output(x)
        noise_shape = (None, *(1,) * (x.ndim - 1))
        return Output(dropout(context.key, x, self.drop_path_rate, noise_shape))


class LayerScale(Layer):
    """Multiplies each channel by a factor that is learned.

    Args:
        init_values: every factor before training.
        projection_dim: the number of channels.

    Shapes:
        (b, ..., c) -> (b, ..., c); gamma (c,).

    Raises:
        ValueError: for no positive number of channels.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> LayerScale(0.5, 2).build(jax.random.key(0), (None, 2))(jnp.ones((1, 2)))
        Array([[0.5, 0.5]], dtype=float32)

    References:
        Touvron et al., 2021, Going deeper with image transformers, https://arxiv.org/abs/2103.17239
    """

    init_values: Real = option(convert=real())
    projection_dim: Integer = option(convert=integer(minimum=1))
    gamma: jax.Array = weight(axes="c")

    @property
    def axis_names(self) -> AxisNames:
        return AxisNames()

    keras_module: ClassVar[str] = "keras.src.applications.convnext"

    @property
    def gamma_initializer(self) -> initializers.Initializer:
        """Initial value of the factors."""
        return initializers.Constant(self.init_values)

    def build(self, key: jax.Array, x: Any) -> LayerScale:
        return self.with_weights(key, gamma=(self.projection_dim,))

    def call(self, x: jax.Array) -> jax.Array:
        return x * align(self.gamma, x.ndim)


class CustomScaleLayer(Layer):
    """Computes `a + scale * b` of a list of two tensors: a residual sum.

    Args:
        scale: the factor of the second tensor.

    Shapes:
        [(b, ...), (b, ...)] -> (b, ...).

    Raises:
        ValueError: for anything but a list of two tensors.

    Example:
        >>> import jax.numpy as jnp
        >>> CustomScaleLayer(0.5)([jnp.ones(2), jnp.ones(2)])
        Array([1.5, 1.5], dtype=float32)
    """

    scale: Real = option(convert=real())

    keras_module: ClassVar[str] = "keras.src.applications.inception_resnet_v2"

    def call(self, *inputs: Any) -> jax.Array:
        x, branch = check_list(self._where, inputs, 2)
        return x + branch * self.scale
