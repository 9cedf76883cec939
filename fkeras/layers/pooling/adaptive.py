"""Adaptive pooling: the output size is given, whatever the size of the input.

Window i of n over an axis of m cells spans the cells from floor(i * m / n) to ceil((i + 1) * m /
n). The windows cover the axis, their sizes differ by at most one, and they overlap where n does not
divide m. An axis of length 0 gives 0, as in global pooling.

Departure from Keras: Keras computes the two bounds in float32. With some versions of JAX its last
window then reads beyond the axis: for n = 7, an axis of 14 cells gives 6 means and a NaN. The
bounds here are exact integers.
"""

from __future__ import annotations

import jax

from fkeras.layers.common import authoring as fk
from fkeras.layers.common.ranks import OverImages, OverSequences, OverVolumes, Spatial
from fkeras.nn.pooling import adaptive_pool


class _AdaptivePooling(Spatial):
    """Reduces `rank` axes to `output_size` windows.

    Raises of the family:
        ValueError: for sizes below 1, and inputs without a channel axis.
    """

    output_size: fk.Sizes = fk.option()
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)


class _AdaptiveAveragePooling(_AdaptivePooling):
    """Takes the mean of each window, 0 for an axis of length 0; integers become floats."""

    def call(self, x: jax.Array) -> jax.Array:
        # autocast leaves integers unchanged; means need a floating dtype
        x = x.astype(self.policy.compute_dtype)
        return adaptive_pool(x, self.output_size, "average", self.data_format)


class _AdaptiveMaxPooling(_AdaptivePooling):
    """Takes the largest value of each window, 0 for an axis of length 0."""

    def call(self, x: jax.Array) -> jax.Array:
        # no cast: integers keep their dtype
        return adaptive_pool(x, self.output_size, "max", self.data_format)


class _Windows1D(OverSequences):
    """Adaptive pooling of sequences.

    Args of the family:
        output_size: number `n` of windows.

    Shapes of the family:
        (b, t, c) -> (b, n, c).
    """

    output_size: fk.Sizes = fk.option(convert=fk.sizes(1))


class _Windows2D(OverImages):
    """Adaptive pooling of images.

    Args of the family:
        output_size: numbers `n` and `m` of windows along height and width; one integer sets both.

    Shapes of the family:
        (b, h, w, c) -> (b, n, m, c).
    """

    output_size: fk.Sizes = fk.option(convert=fk.sizes(2))


class _Windows3D(OverVolumes):
    """Adaptive pooling of volumes.

    Args of the family:
        output_size: numbers of windows along the three axes; one integer sets all.

    Shapes of the family:
        (b, d1, d2, d3, c) -> (b, n1, n2, n3, c).
    """

    output_size: fk.Sizes = fk.option(convert=fk.sizes(3))


class AdaptiveAveragePooling1D(_Windows1D, _AdaptiveAveragePooling):
    """Takes the mean of each of `output_size` windows of a sequence.

    Integers become floats. An axis of length 0 gives 0.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x = jnp.arange(6.0).reshape(1, 6, 1)
        >>> fk.layers.AdaptiveAveragePooling1D(3)(x)[0, :, 0]
        Array([0.5, 2.5, 4.5], dtype=float32)
    """


class AdaptiveAveragePooling2D(_Windows2D, _AdaptiveAveragePooling):
    """Takes the mean of each of `output_size` windows of an image.

    Integers become floats. An axis of length 0 gives 0.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x = jnp.arange(16.0).reshape(1, 4, 4, 1)
        >>> fk.layers.AdaptiveAveragePooling2D(2)(x)[0, :, :, 0]
        Array([[ 2.5,  4.5],
               [10.5, 12.5]], dtype=float32)
    """


class AdaptiveAveragePooling3D(_Windows3D, _AdaptiveAveragePooling):
    """Takes the mean of each of `output_size` windows of a volume.

    Integers become floats. An axis of length 0 gives 0.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x = jnp.arange(64.0).reshape(1, 4, 4, 4, 1)
        >>> fk.layers.AdaptiveAveragePooling3D(2)(x)[0, :, :, 0, 0]
        Array([[10.5, 18.5],
               [42.5, 50.5]], dtype=float32)
    """


class AdaptiveMaxPooling1D(_Windows1D, _AdaptiveMaxPooling):
    """Takes the largest value of each of `output_size` windows of a sequence.

    An axis of length 0 gives 0.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x = jnp.arange(6.0).reshape(1, 6, 1)
        >>> fk.layers.AdaptiveMaxPooling1D(3)(x)[0, :, 0]
        Array([1., 3., 5.], dtype=float32)
    """


class AdaptiveMaxPooling2D(_Windows2D, _AdaptiveMaxPooling):
    """Takes the largest value of each of `output_size` windows of an image.

    An axis of length 0 gives 0.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x = jnp.arange(16.0).reshape(1, 4, 4, 1)
        >>> fk.layers.AdaptiveMaxPooling2D(2)(x)[0, :, :, 0]
        Array([[ 5.,  7.],
               [13., 15.]], dtype=float32)
    """


class AdaptiveMaxPooling3D(_Windows3D, _AdaptiveMaxPooling):
    """Takes the largest value of each of `output_size` windows of a volume.

    An axis of length 0 gives 0.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x = jnp.arange(64.0).reshape(1, 4, 4, 4, 1)
        >>> fk.layers.AdaptiveMaxPooling3D(2)(x)[0, :, :, 0, 0]
        Array([[21., 29.],
               [53., 61.]], dtype=float32)
    """
