"""Global pooling over sequences, images and volumes: one value per channel."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk
from fkeras.layers.common.ranks import OverImages, OverSequences, OverVolumes, Spatial
from fkeras.nn.cpu.extremes import largest
from fkeras.nn.numerics.axes import format_shape, spatial_axes
from fkeras.nn.pooling import masked_mean


class _GlobalPooling(Spatial):
    """Reduces `rank` axes to one value per channel.

    Args of the family:
        keepdims: whether the pooled axes stay, with size 1.

    Raises of the family:
        ValueError: for inputs without a channel axis.
    """

    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)
    keepdims: bool = fk.option(default=False, convert=fk.boolean)


class _GlobalMaxPooling(_GlobalPooling):
    """Takes the largest value of each channel; 0 for an input without steps."""

    def call(self, x: jax.Array) -> jax.Array:
        axes = spatial_axes(x.ndim, self.data_format)
        # jnp.max raises for no values; the sum gives 0 of the same shape
        if 0 in (x.shape[axis] for axis in axes):
            return jnp.sum(x, axes, keepdims=self.keepdims, dtype=x.dtype)
        # not jnp.max: its gradient is NaN if XLA recomputes the operand with other rounding
        return largest(x, axes, self.keepdims)


class _GlobalAveragePooling(_GlobalPooling):
    """Takes the mean of each channel, 0 for an input without steps; integers become floats."""

    def forward(self, context: fk.Context, x: jax.Array) -> fk.Output:
        # autocast leaves integers unchanged
        x = x.astype(self.policy.compute_dtype)
        if context.mask is not None:
            # exact sizes: a mask of size 1 would broadcast in the sum, but not in the count
            steps = (x.shape[0], *(x.shape[a] for a in spatial_axes(x.ndim, self.data_format)))
            if context.mask.shape != steps:
                raise ValueError(
                    f"{self._where}: expected a mask of shape {format_shape(steps)}, one value per "
                    f"step of the input {format_shape(x.shape)}, received "
                    f"{format_shape(context.mask.shape)}. Give the mask of the time axis."
                )
        # no mask in the output: the time axis that the mask belongs to is gone
        return fk.Output(masked_mean(x, context.mask, self.data_format, self.keepdims))


class GlobalMaxPooling1D(OverSequences, _GlobalMaxPooling):
    """Takes the largest value of each channel of a sequence.

    Shapes:
        (b, t, c) -> (b, c), or (b, 1, c) with keepdims.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x = jnp.arange(6.0).reshape(1, 3, 2)
        >>> fk.layers.GlobalMaxPooling1D()(x)
        Array([[4., 5.]], dtype=float32)
    """


class GlobalMaxPooling2D(OverImages, _GlobalMaxPooling):
    """Takes the largest value of each channel of an image.

    Shapes:
        (b, h, w, c) -> (b, c), or (b, 1, 1, c) with keepdims.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x = jnp.arange(8.0).reshape(1, 2, 2, 2)
        >>> fk.layers.GlobalMaxPooling2D()(x)
        Array([[6., 7.]], dtype=float32)
    """


class GlobalMaxPooling3D(OverVolumes, _GlobalMaxPooling):
    """Takes the largest value of each channel of a volume.

    Shapes:
        (b, d1, d2, d3, c) -> (b, c), or (b, 1, 1, 1, c) with keepdims.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x = jnp.arange(16.0).reshape(1, 2, 2, 2, 2)
        >>> fk.layers.GlobalMaxPooling3D()(x)
        Array([[14., 15.]], dtype=float32)
    """


class GlobalAveragePooling1D(OverSequences, _GlobalAveragePooling):
    """Takes the mean of each channel of a sequence.

    The mean excludes masked steps. A row whose steps are all masked gives 0 (in Keras NaN).
    Integers become floats.

    Shapes:
        (b, t, c) -> (b, c), or (b, 1, c) with keepdims.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x = jnp.arange(6.0).reshape(1, 3, 2)
        >>> fk.layers.GlobalAveragePooling1D()(x)
        Array([[2., 3.]], dtype=float32)
    """

    supports_masking: ClassVar[bool] = True
    _keras_form: ClassVar[fk.KerasForm] = fk.KerasForm(option_names=("mask",))


class GlobalAveragePooling2D(OverImages, _GlobalAveragePooling):
    """Takes the mean of each channel of an image.

    Integers become floats.

    Shapes:
        (b, h, w, c) -> (b, c), or (b, 1, 1, c) with keepdims.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x = jnp.arange(8.0).reshape(1, 2, 2, 2)
        >>> fk.layers.GlobalAveragePooling2D()(x)
        Array([[3., 4.]], dtype=float32)
    """


class GlobalAveragePooling3D(OverVolumes, _GlobalAveragePooling):
    """Takes the mean of each channel of a volume.

    Integers become floats.

    Shapes:
        (b, d1, d2, d3, c) -> (b, c), or (b, 1, 1, 1, c) with keepdims.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x = jnp.arange(16.0).reshape(1, 2, 2, 2, 2)
        >>> fk.layers.GlobalAveragePooling3D()(x)
        Array([[7., 8.]], dtype=float32)
    """


# Keras's aliases
GlobalMaxPool1D = GlobalMaxPooling1D
GlobalMaxPool2D = GlobalMaxPooling2D
GlobalMaxPool3D = GlobalMaxPooling3D
GlobalAvgPool1D = GlobalAveragePooling1D
GlobalAvgPool2D = GlobalAveragePooling2D
GlobalAvgPool3D = GlobalAveragePooling3D
