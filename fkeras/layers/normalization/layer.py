"""`LayerNormalization`: normalizes each sample over its features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import jax

from fkeras import constraints, initializers, regularizers
from fkeras.engine import Layer, option, weight
from fkeras.engine.config.converters import boolean, real
from fkeras.engine.config.field_types import Axes, Constraint, Initializer, Real, Regularizer
from fkeras.engine.tree.axes import AxisNames
from fkeras.engine.values.frozen import FrozenDict
from fkeras.engine.values.spec import SpecLike
from fkeras.layers.normalization.axes import (
    as_tuple,
    check_axes,
    check_weight_sizes,
    normalized_axes,
)
from fkeras.nn.normalization import layer_normalization


class LayerNormalization(Layer):
    """Normalizes each sample to mean 0 and variance 1 over `axis`, then scales and shifts.

    Statistics are float32 even if the compute dtype is half precision, and weights keep the
    variable dtype.

    Args:
        axis: axis or axes that are normalized together.
        epsilon: added to the variance.
        center: whether to add `beta`.
        scale: whether to multiply by `gamma`.
        beta_initializer: draws `beta`.
        gamma_initializer: draws `gamma`.
        beta_regularizer: penalty on `beta`.
        gamma_regularizer: penalty on `gamma`.
        beta_constraint: projection of `beta` after each update.
        gamma_constraint: projection of `gamma` after each update.
        rms_scaling: whether to divide without subtracting the mean, with `gamma` and without
            `beta`. (Keras keeps this argument for old files.) Keyword only.

    Shapes:
        (b, ..., d) -> (b, ..., d); gamma and beta have the sizes of the axes in `axis`,
        sorted.

    Raises:
        TypeError: if `axis` is neither an integer nor a list of different integers.
        ValueError: if the input lacks an axis.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.LayerNormalization(epsilon=0.0).build(jax.random.key(0), (None, 2))
        >>> layer(jnp.array([[1.0, 3.0]]))
        Array([[-1.,  1.]], dtype=float32)

    References:
        Ba, Kiros and Hinton, 2016, Layer normalization, https://arxiv.org/abs/1607.06450
    """

    axis: Axes = option(default=-1, convert=normalized_axes)
    epsilon: Real = option(default=1e-3, convert=real(minimum=0))
    center: bool = option(default=True, convert=boolean)
    scale: bool = option(default=True, convert=boolean)
    beta_initializer: Initializer = option(default="zeros", convert=initializers.get)
    gamma_initializer: Initializer = option(default="ones", convert=initializers.get)
    beta_regularizer: Regularizer = option(default=None, convert=regularizers.get)
    gamma_regularizer: Regularizer = option(default=None, convert=regularizers.get)
    beta_constraint: Constraint = option(default=None, convert=constraints.get)
    gamma_constraint: Constraint = option(default=None, convert=constraints.get)
    rms_scaling: bool = option(default=False, convert=boolean, kw_only=True)

    gamma: jax.Array | None = weight()
    beta: jax.Array | None = weight()

    @property
    def axis_names(self) -> AxisNames:
        # one letter for the features, the usual axis; other normalized axes have no names
        letters = "_" * (len(as_tuple(self.axis)) - 1) + "d"
        return AxisNames(FrozenDict({"gamma": letters, "beta": letters}))

    supports_masking: ClassVar[bool] = True
    # gamma, beta and the statistics remain float32
    _autocast: ClassVar[bool] = False

    def build(self, key: jax.Array, x: SpecLike) -> Self:
        shape = self._sizes(x.shape)
        scale, center = self.scale or self.rms_scaling, self.center and not self.rms_scaling
        return self.with_weights(
            key, gamma=shape if scale else None, beta=shape if center else None
        )

    def call(self, x: jax.Array) -> jax.Array:
        sizes = self._sizes(x.shape)
        for w in (self.gamma, self.beta):
            if w is not None:
                check_weight_sizes(self, self.axis, w, sizes, x.shape)
        axes = as_tuple(self.axis)
        y = layer_normalization(x, self.gamma, self.beta, axes, self.epsilon, self.rms_scaling)
        return y.astype(self.policy.compute_dtype)

    def _sizes(self, shape: Sequence[Any]) -> tuple[Any, ...]:
        """Returns the shape of the weights for an input of this shape."""
        check_axes(self, self.axis, shape)
        # sorted as given, with negative axes first: the layout of the weights in Keras's files
        return tuple(shape[a] for a in sorted(as_tuple(self.axis)))
