"""`LayerNormalization`: every example normalized over its own features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp

from fkeras import constraints, initializers, regularizers
from fkeras.engine import Layer, Spec, option, weight
from fkeras.engine.config.converters import axes, boolean, real
from fkeras.layers.common.arguments import format_shape
from fkeras.layers.common.dtypes import wide_dtype
from fkeras.layers.normalization.statistics import inverse_root


def layer_normalization(
    x: jax.Array,
    gamma: jax.Array | None = None,
    beta: jax.Array | None = None,
    axis: Sequence[int] = (-1,),
    epsilon: float = 1e-3,
    rms_scaling: bool = False,
) -> jax.Array:
    """Computes `(x - mean) / sqrt(variance + epsilon) * gamma + beta` over the axes `axis`.

    Args:
        x: array of shape (b, ...).
        gamma: an array that fills the axes `axis` of `x`, or None for 1.
        beta: an array that fills them, or None for 0.
        axis: the axes that are normalized together.
        epsilon: added to the variance.
        rms_scaling: whether `x` is only divided, and no mean taken off.

    Returns:
        An array of the shape and dtype of `x`. The computation is in float32 at least.

    Example:
        >>> import jax.numpy as jnp
        >>> layer_normalization(jnp.array([[1.0, 3.0]]), epsilon=0.0)
        Array([[-1.,  1.]], dtype=float32)
    """
    axes = tuple(sorted(a % x.ndim for a in axis))
    dtype = x.dtype
    x = x.astype(wide_dtype(dtype))
    # two passes: the mean of squares minus the squared mean loses all digits far from zero
    centred = x - jnp.mean(x, axes, keepdims=True)
    scale = inverse_root(jnp.mean(jnp.square(centred), axes, keepdims=True) + epsilon)
    shape = [x.shape[a] if a in axes else 1 for a in range(x.ndim)]
    if gamma is not None:
        scale = scale * jnp.reshape(gamma, shape).astype(x.dtype)
    y = (x if rms_scaling else centred) * scale
    if beta is not None:
        y = y + jnp.reshape(beta, shape).astype(x.dtype)
    return y.astype(dtype) if jnp.issubdtype(dtype, jnp.inexact) else y


_axes = axes(hint="For the last axis give -1, for an image's features (1, 2, 3).")


def _axis(value: Any) -> int | tuple[int, ...]:
    found = _axes(value)
    return found[0] if isinstance(found, tuple) and len(found) == 1 else found


class LayerNormalization(Layer):
    """Normalizes each example to mean 0 and variance 1 over `axis`, then scales and shifts.

    Means and variances are taken in float32 under a shorter compute dtype, and weights stay in
    the dtype of variables.

    Args:
        axis: the axis, or the axes, that are normalized together.
        epsilon: added to the variance.
        center: whether to add `beta`.
        scale: whether to multiply with `gamma`.
        beta_initializer: makes `beta`.
        gamma_initializer: makes `gamma`.
        beta_regularizer: a penalty on `beta`.
        gamma_regularizer: a penalty on `gamma`.
        beta_constraint: projects `beta` after an update.
        gamma_constraint: projects `gamma` after an update.
        rms_scaling: by keyword only: whether to divide only, with `gamma` and without `beta`.
            (Keras keeps it for old files.)

    Shapes:
        (b, ..., d) -> (b, ..., d); gamma and beta have the sizes of the axes in `axis`,
        sorted.

    Raises:
        TypeError: where `axis` is no integer and no list of different integers.
        ValueError: where an axis is missing in the input.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.LayerNormalization(epsilon=0.0).build(jax.random.key(0), (None, 2))
        >>> layer(jnp.array([[1.0, 3.0]]))
        Array([[-1.,  1.]], dtype=float32)

    References:
        Ba, Kiros and Hinton, 2016, Layer normalization, https://arxiv.org/abs/1607.06450
    """

    axis: int | tuple[int, ...] = option(default=-1, convert=_axis)
    epsilon: float = option(default=1e-3, convert=real(minimum=0))
    center: bool = option(default=True, convert=boolean)
    scale: bool = option(default=True, convert=boolean)
    beta_initializer: Any = option(default="zeros", convert=initializers.get)
    gamma_initializer: Any = option(default="ones", convert=initializers.get)
    beta_regularizer: Any = option(default=None, convert=regularizers.get)
    gamma_regularizer: Any = option(default=None, convert=regularizers.get)
    beta_constraint: Any = option(default=None, convert=constraints.get)
    gamma_constraint: Any = option(default=None, convert=constraints.get)
    rms_scaling: bool = option(default=False, convert=boolean, kw_only=True)

    gamma: jax.Array | None = weight()
    beta: jax.Array | None = weight()

    supports_masking: ClassVar[bool] = True
    autocast: ClassVar[bool] = False

    def build(self, key: jax.Array, x: Spec) -> Self:
        shape = self._sizes(x.shape)
        scale, center = self.scale or self.rms_scaling, self.center and not self.rms_scaling
        return self.with_weights(
            key, gamma=shape if scale else None, beta=shape if center else None
        )

    def call(self, x: jax.Array) -> jax.Array:
        sizes = self._sizes(x.shape)
        for w in (self.gamma, self.beta):
            if w is not None and w.shape != sizes:
                raise ValueError(
                    f"{self.where}: expected sizes {w.shape} on axis {self.axis}, received "
                    f"{format_shape(x.shape)}. Its weights are for these sizes; use another layer "
                    "for other ones."
                )
        axes = self._axes
        y = layer_normalization(x, self.gamma, self.beta, axes, self.epsilon, self.rms_scaling)
        return y.astype(self.policy.compute_dtype)

    @property
    def _axes(self) -> tuple[int, ...]:
        return self.axis if isinstance(self.axis, tuple) else (self.axis,)

    def _sizes(self, shape: Sequence[Any]) -> tuple[Any, ...]:
        """The shape of the weights for an input of this shape."""
        ndim = len(shape)
        front = {a % ndim for a in self._axes if -ndim <= a < ndim}
        if len(front) != len(self._axes):
            raise ValueError(
                f"{self.where}: expected an input with the axes {self.axis}, each once, received "
                f"{format_shape(shape)}. Use axes from {-ndim} to {ndim - 1}."
            )
        # sorted as given, negative ones first: the layout of the weights in Keras's files
        return tuple(shape[a] for a in sorted(self._axes))
