"""Pooling over windows of sequences, images and volumes.

Each kind of pooling is one function of arrays for any number of axes; the classes set the number of
axes.

With padding "valid", the layers and the functions of `fkeras.ops` reject an axis that is shorter
than the window. Keras rejects symbolic inputs of this kind, but returns an empty array for arrays.
With "same", an axis of length n gives ceil(n / stride) values, so none for n = 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import jax

from fkeras.layers.common import authoring as fk
from fkeras.layers.common.ranks import OverImages, OverSequences, OverVolumes, Spatial
from fkeras.nn.numerics.axes import check_window
from fkeras.nn.pooling import average_pool, max_pool


class _Pooling(Spatial):
    """Reduces each window over `rank` axes to one value.

    Args of the family:
        strides: steps of the window; None for the size of the window, so that windows do not
            overlap.
        padding: "valid" keeps windows inside the input, "same" gives ceil(size / stride) windows.

    Raises of the family:
        ValueError: for inputs without a channel axis, or smaller than the window with padding
            "valid".
    """

    _positional: ClassVar[tuple[str, ...]] = ("name",)

    pool_size: fk.Sizes = fk.option(default=2)
    strides: fk.OptionalSizes = fk.option(default=None)
    padding: str = fk.option(default="valid", convert=fk.choice("valid", "same"))
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.strides is None:
            # Keras writes the resolved strides: a layer must equal the layer read from its config.
            # The dataclass is frozen, so plain assignment raises.
            object.__setattr__(self, "strides", self.pool_size)

    def pool(self, function: Callable[..., jax.Array], x: jax.Array) -> jax.Array:
        """Applies `function` to the windows of `x` that the options of the layer define."""
        # XLA returns an empty array for a window larger than the input
        if self.padding == "valid":
            check_window(self._where, x, self.pool_size, "pool_size", self.data_format)
        return function(x, self.pool_size, self.strides, self.padding, self.data_format)


class _MaxPooling(_Pooling):
    """Takes the largest value of each window."""

    def call(self, x: jax.Array) -> jax.Array:
        return self.pool(max_pool, x)


class _AveragePooling(_Pooling):
    """Takes the mean of each window; integers become floats."""

    def call(self, x: jax.Array) -> jax.Array:
        # autocast leaves integers unchanged
        return self.pool(average_pool, x.astype(self.policy.compute_dtype))


class _Windows1D(OverSequences):
    """Pooling over windows of sequences.

    Args of the family:
        pool_size: length of the window.

    Shapes of the family:
        (b, t, c) -> (b, t2, c).
    """

    pool_size: fk.Sizes = fk.option(default=2, convert=fk.sizes(1))
    strides: fk.OptionalSizes = fk.option(default=None, convert=fk.sizes(1, optional=True))


class _Windows2D(OverImages):
    """Pooling over windows of images.

    Args of the family:
        pool_size: height and width of the window; one integer sets both.

    Shapes of the family:
        (b, h, w, c) -> (b, h2, w2, c).
    """

    pool_size: fk.Sizes = fk.option(default=2, convert=fk.sizes(2))
    strides: fk.OptionalSizes = fk.option(default=None, convert=fk.sizes(2, optional=True))


class _Windows3D(OverVolumes):
    """Pooling over windows of volumes.

    Args of the family:
        pool_size: sizes of the window along the three axes; one integer sets all.

    Shapes of the family:
        (b, d1, d2, d3, c) -> (b, e1, e2, e3, c).
    """

    pool_size: fk.Sizes = fk.option(default=2, convert=fk.sizes(3))
    strides: fk.OptionalSizes = fk.option(default=None, convert=fk.sizes(3, optional=True))


class MaxPooling1D(_Windows1D, _MaxPooling):
    """Takes the largest value of each window of a sequence.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x = jnp.arange(4.0).reshape(1, 4, 1)
        >>> fk.layers.MaxPooling1D(2)(x)[0, :, 0]
        Array([1., 3.], dtype=float32)
    """


class MaxPooling2D(_Windows2D, _MaxPooling):
    """Takes the largest value of each window of an image.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x = jnp.arange(16.0).reshape(1, 4, 4, 1)
        >>> fk.layers.MaxPooling2D(2)(x)[0, :, :, 0]
        Array([[ 5.,  7.],
               [13., 15.]], dtype=float32)
    """


class MaxPooling3D(_Windows3D, _MaxPooling):
    """Takes the largest value of each window of a volume.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x = jnp.arange(64.0).reshape(1, 4, 4, 4, 1)
        >>> fk.layers.MaxPooling3D(2)(x)[0, :, :, 0, 0]
        Array([[21., 29.],
               [53., 61.]], dtype=float32)
    """


class AveragePooling1D(_Windows1D, _AveragePooling):
    """Takes the mean of each window of a sequence.

    With padding "same", the mean excludes padded cells. Integers become floats.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x = jnp.arange(4.0).reshape(1, 4, 1)
        >>> fk.layers.AveragePooling1D(2)(x)[0, :, 0]
        Array([0.5, 2.5], dtype=float32)
    """


class AveragePooling2D(_Windows2D, _AveragePooling):
    """Takes the mean of each window of an image.

    With padding "same", the mean excludes padded cells. Integers become floats.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x = jnp.arange(16.0).reshape(1, 4, 4, 1)
        >>> fk.layers.AveragePooling2D(2)(x)[0, :, :, 0]
        Array([[ 2.5,  4.5],
               [10.5, 12.5]], dtype=float32)
    """


class AveragePooling3D(_Windows3D, _AveragePooling):
    """Takes the mean of each window of a volume.

    With padding "same", the mean excludes padded cells. Integers become floats.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x = jnp.arange(64.0).reshape(1, 4, 4, 4, 1)
        >>> fk.layers.AveragePooling3D(2)(x)[0, :, :, 0, 0]
        Array([[10.5, 18.5],
               [42.5, 50.5]], dtype=float32)
    """


# Keras's aliases
MaxPool1D, MaxPool2D, MaxPool3D = MaxPooling1D, MaxPooling2D, MaxPooling3D
AvgPool1D, AvgPool2D, AvgPool3D = AveragePooling1D, AveragePooling2D, AveragePooling3D
