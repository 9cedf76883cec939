"""Normalizations of each sample over its features: `LayerNormalization`, `RMSNormalization`, `UnitNormalization`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk
from fkeras.nn.normalization import layer_normalization, rms_normalization, unit_normalization
from fkeras.nn.numerics.axes import format_shape
from fkeras.nn.numerics.dtypes import wide_dtype

normalized_axes = fk.axis_or_axes(
    hint="For the last axis give -1, for an image's features (1, 2, 3)."
)


def as_tuple(axis: int | Sequence[int]) -> tuple[int, ...]:
    """Returns one or more axes as a tuple."""
    return (axis,) if isinstance(axis, int) else tuple(axis)


def check_axes(layer: fk.Layer, axis: int | Sequence[int], shape: Sequence[Any]) -> set[int]:
    """Checks that an input of `shape` has each axis once, and returns the axes counted from 0.

    Raises:
        ValueError: for a missing axis, and for a repeated axis.
    """
    ndim, axes = len(shape), as_tuple(axis)
    # -1 and 2 may be the same axis: compare positions, not numbers
    positions = {a % ndim for a in axes if -ndim <= a < ndim}
    if len(positions) != len(axes):
        raise ValueError(
            f"{layer._where}: expected an input with the axes {axis}, each once, received "
            f"{format_shape(shape)}. Use axes from {-ndim} to {ndim - 1}."
        )
    return positions


def check_weight_sizes(
    layer: fk.Layer,
    axis: int | Sequence[int],
    weight: jax.Array,
    sizes: tuple,
    shape: Sequence[Any],
) -> None:
    """Raises an error if a weight's shape differs from the `sizes` of an input's axes."""
    if weight.shape != sizes:
        raise ValueError(
            f"{layer._where}: expected sizes {weight.shape} on axis {axis}, received "
            f"{format_shape(shape)}. The layer's weights have these sizes; use another layer for "
            "other sizes."
        )


class ScaleAndShift(fk.Layer):
    """Normalization with weights `gamma` and `beta`.

    Args of the family:
        center: whether to add `beta`.
        scale: whether to multiply by `gamma`.
        beta_initializer: draws `beta`.
        gamma_initializer: draws `gamma`.
        beta_regularizer: penalty on `beta`.
        gamma_regularizer: penalty on `gamma`.
        beta_constraint: projection of `beta` after each update.
        gamma_constraint: projection of `gamma` after each update.
    """

    center: bool = fk.option(default=True, convert=fk.boolean)
    scale: bool = fk.option(default=True, convert=fk.boolean)
    beta_initializer: fk.Initializer = fk.option(default="zeros", convert=fk.initializer)
    gamma_initializer: fk.Initializer = fk.option(default="ones", convert=fk.initializer)
    beta_regularizer: fk.Regularizer = fk.option(default=None, convert=fk.regularizer)
    gamma_regularizer: fk.Regularizer = fk.option(default=None, convert=fk.regularizer)
    beta_constraint: fk.Constraint = fk.option(default=None, convert=fk.constraint)
    gamma_constraint: fk.Constraint = fk.option(default=None, convert=fk.constraint)

    gamma: jax.Array | None = fk.weight()
    beta: jax.Array | None = fk.weight()

    supports_masking: ClassVar[bool] = True
    # gamma, beta and the statistics remain float32
    _autocast: ClassVar[bool] = False


class _OverAxes(fk.Layer):
    """Normalization over one or more axes, with weights of their sizes.

    Args of the family:
        axis: axis or axes that are normalized together.

    Raises of the family:
        TypeError: if `axis` is neither an integer nor a list of different integers.
        ValueError: if the input lacks an axis.
    """

    axis: fk.Axes = fk.option(default=-1, convert=normalized_axes)
    epsilon: fk.Real = fk.option(default=1e-3, convert=fk.real(minimum=0))

    #: names of the weights
    weight_names: ClassVar[tuple[str, ...]]

    @property
    def axis_names(self) -> fk.AxisNames:
        # one letter for the features, the usual axis; other normalized axes have no names
        letters = "_" * (len(as_tuple(self.axis)) - 1) + "d"
        return fk.AxisNames(fk.FrozenDict(dict.fromkeys(self.weight_names, letters)))

    def _sizes(self, shape: Sequence[Any]) -> tuple[Any, ...]:
        """Returns the shape of the weights for an input of this shape."""
        check_axes(self, self.axis, shape)
        # sorted as given, with negative axes first: the layout of the weights in Keras's files
        return tuple(shape[a] for a in sorted(as_tuple(self.axis)))


class LayerNormalization(ScaleAndShift, _OverAxes):
    """Normalizes each sample to mean 0 and variance 1 over `axis`, then scales and shifts.

    Statistics are float32 even if the compute dtype is half precision, and weights keep the
    variable dtype.

    Args:
        epsilon: added to the variance.
        rms_scaling: whether to divide without subtracting the mean, with `gamma` and without
            `beta`. (Keras keeps this argument for old files.) Keyword only.

    Shapes:
        (b, ..., d) -> (b, ..., d); gamma and beta have the sizes of the axes in `axis`,
        sorted.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.LayerNormalization(epsilon=0.0).build(jax.random.key(0), (None, 2))
        >>> layer(jnp.array([[1.0, 3.0]]))
        Array([[-1.,  1.]], dtype=float32)

    References:
        Ba, Kiros and Hinton, 2016, Layer normalization, https://arxiv.org/abs/1607.06450
    """

    weight_names: ClassVar[tuple[str, ...]] = ("gamma", "beta")

    rms_scaling: bool = fk.option(default=False, convert=fk.boolean, kw_only=True)

    def build(self, key: jax.Array, x: fk.SpecLike) -> Self:
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


class RMSNormalization(_OverAxes):
    """Divides each sample by the root of its mean square over `axis`, then scales.

    The mean is not subtracted. Mean squares are float32 even if the compute dtype is half
    precision, and `scale` keeps the variable dtype. `scale` is always aligned with `axis`; Keras
    3.15 always aligns it with the last axes, so results differ for other axes.

    Args:
        epsilon: added to the mean square.
        scale_offset: added to `scale`, which starts at `1 - scale_offset`: 1 in Gemma. Keyword only;
            Keras has no such argument.

    Shapes:
        (b, ..., d) -> (b, ..., d); scale has the sizes of the axes in `axis`, sorted.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.RMSNormalization(epsilon=0.0).build(jax.random.key(0), (None, 2))
        >>> layer(jnp.array([[3.0, -3.0]]))
        Array([[ 1., -1.]], dtype=float32)

    References:
        Zhang and Sennrich, 2019, Root mean square layer normalization,
        https://arxiv.org/abs/1910.07467
    """

    _keras_form: ClassVar[fk.KerasForm] = fk.KerasForm(input_names=("x",))

    weight_names: ClassVar[tuple[str, ...]] = ("scale",)

    epsilon: fk.Real = fk.option(default=1e-6, convert=fk.real(minimum=0))

    scale_offset: fk.Real = fk.option(default=0.0, convert=fk.real(), kw_only=True)

    scale: jax.Array = fk.weight()

    supports_masking: ClassVar[bool] = True

    def _loses_masks(self, masks: Sequence[Any]) -> bool:
        # Keras's layer does not declare support for masks, so a mask ends here
        return True

    # scale and the mean squares remain float32
    _autocast: ClassVar[bool] = False

    @property
    def scale_initializer(self) -> Any:
        """The initial scale: with the offset a factor of 1."""
        return jax.nn.initializers.constant(1.0 - self.scale_offset)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        if not self.scale_offset:  # Keras has no such argument
            del config["scale_offset"]
        return config

    def build(self, key: jax.Array, x: fk.SpecLike) -> Self:
        return self.with_weights(key, scale=self._sizes(x.shape))

    def call(self, x: jax.Array) -> jax.Array:
        sizes = self._sizes(x.shape)
        check_weight_sizes(self, self.axis, self.scale, sizes, x.shape)
        dtype = self.policy.compute_dtype
        # rounds to the compute dtype as Keras does, before the statistics in float32
        if jnp.issubdtype(x.dtype, jnp.floating):
            x = x.astype(dtype)
        scale = self.scale
        if self.scale_offset:
            # the sum in float32: bfloat16 next to 1 has steps of 1/128
            scale = scale.astype(wide_dtype(scale.dtype)) + self.scale_offset
        return rms_normalization(x, scale, self.axis, self.epsilon).astype(dtype)

    def _sizes(self, shape: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(shape[a] for a in sorted(check_axes(self, self.axis, shape)))


class UnitNormalization(fk.Layer):
    """Divides each vector by its norm: `x / |x|` over `axis`.

    A zero vector stays zero, with gradient 0 (NaN in Keras 3.15). Squares are summed in float32
    even if the compute dtype is half precision.

    Args:
        axis: axis or axes of a vector.

    Shapes:
        (b, ...) -> (b, ...).

    Raises:
        TypeError: if `axis` is neither an integer nor a list of integers.
        ValueError: if the input lacks an axis.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.UnitNormalization()(jnp.array([[3.0, 4.0]]))
        Array([[0.6, 0.8]], dtype=float32)
    """

    axis: fk.Axes = fk.option(default=-1, convert=fk.axes())

    supports_masking: ClassVar[bool] = True

    def call(self, x: jax.Array) -> jax.Array:
        axes = self.axis if isinstance(self.axis, tuple) else (self.axis,)
        if any(not -x.ndim <= a < x.ndim for a in axes):
            raise ValueError(
                f"{self._where}: expected an input with the axes {self.axis}, received "
                f"{format_shape(x.shape)}. Use axes from {-x.ndim} to {x.ndim - 1}."
            )
        return unit_normalization(x, axes)
