"""Layers that models of `keras.applications` bring with them: those of ConvNeXt and Inception-ResNet.

Keras has no public names for them and finds them by their place in its sources, which files note.
"""

from __future__ import annotations

from typing import ClassVar

import jax

from fkeras.layers.common import authoring as fk
from fkeras.layers.merging.elementwise import check_list
from fkeras.nn.noise import dropout

__all__ = ("CustomScaleLayer", "LayerScale", "StochasticDepth")


class StochasticDepth(fk.Layer):
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

    drop_path_rate: fk.Real = fk.option(convert=fk.probability)

    _keras_module: ClassVar[str] = "keras.src.applications.convnext"
    _keras_form: ClassVar[fk.KerasForm] = fk.KerasForm(training_default=None)

    def forward(self, context: fk.Context, x: jax.Array) -> fk.Output:
        if not context.training or self.drop_path_rate == 0:
            return fk.Output(x)
        noise_shape = (None, *(1,) * (x.ndim - 1))
        return fk.Output(dropout(context.key, x, self.drop_path_rate, noise_shape))


class LayerScale(fk.Layer):
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

    init_values: fk.Real = fk.option(convert=fk.real())
    projection_dim: fk.Integer = fk.option(convert=fk.integer(minimum=1))
    gamma: jax.Array = fk.weight(axes="c")

    @property
    def axis_names(self) -> fk.AxisNames:
        return fk.AxisNames()

    _keras_module: ClassVar[str] = "keras.src.applications.convnext"

    @property
    def gamma_initializer(self) -> fk.initializers.Initializer:
        """Initial value of the factors."""
        return fk.initializers.Constant(self.init_values)

    def build(self, key: jax.Array, x: fk.Tree) -> LayerScale:
        return self.with_weights(key, gamma=(self.projection_dim,))

    def call(self, x: jax.Array) -> jax.Array:
        return x * fk.align(self.gamma, x.ndim)


class CustomScaleLayer(fk.Layer):
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

    scale: fk.Real = fk.option(convert=fk.real())

    _keras_module: ClassVar[str] = "keras.src.applications.inception_resnet_v2"

    def call(self, *inputs: fk.Tree) -> jax.Array:
        x, branch = check_list(self._where, inputs, 2)
        return x + branch * self.scale
