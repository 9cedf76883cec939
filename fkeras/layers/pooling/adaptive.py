"""Pooling to a given size, whatever the size of the input.

Window i of n over an axis of m cells goes from floor(i * m / n) to ceil((i + 1) * m / n): the
windows cover the axis, their sizes differ by one at most, and they overlap where n does not
divide m. Windows of an axis without cells give 0, as global pooling does. Keras rounds the two in float32, and with some versions of JAX reads beyond the axis where
n is 7, 13 or 14, among others: 14 cells give 6 means and a NaN for n = 7. Here they are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine import InputSpec, Layer, align, option
from fkeras.engine.config.converters import choice, sizes
from fkeras.layers.common.arguments import data_format_name
from fkeras.layers.common.spatial import spatial_axes
from fkeras.nn.extremes import largest

# more windows than this, and than cells, are a mistake, or made to fill the memory
_WINDOWS = 1 << 14
# the numbers of cells in all windows of an axis, which stand in the program
_CELLS = 1 << 25


def adaptive_pool(
    x: jax.Array, output_size: Sequence[int], mode: str, data_format: str = "channels_last"
) -> jax.Array:
    """Takes the mean or the largest value of each of `output_size` windows along each axis.

    Args:
        x: array of shape (b, *sizes, c), or (b, c, *sizes) where the channels come first; of
            floats, or with "max" of any numbers.
        output_size: the number of windows along each axis.
        mode: "average" or "max".
        data_format: "channels_last" or "channels_first".

    Returns:
        An array of shape (b, *output_size, c), or (b, c, *output_size); 0 where an axis of `x` has
        no cells.

    Raises:
        ValueError: for another mode.

    Example:
        >>> import jax.numpy as jnp
        >>> x = jnp.arange(5.0).reshape(1, 5, 1)
        >>> adaptive_pool(x, (2,), "max").ravel()
        Array([2., 4.], dtype=float32)
        >>> adaptive_pool(x, (2,), "average").ravel()
        Array([1., 3.], dtype=float32)
    """
    mode = choice("average", "max").check("adaptive_pool: mode", mode)
    # windows are products of windows along the axes: one axis after the other gives the same
    for axis, count in zip(spatial_axes(x.ndim, data_format), output_size, strict=True):
        x = _pool_axis(x, axis, count, mode)
    return x


def _pool_axis(x: jax.Array, axis: int, count: int, mode: str) -> jax.Array:
    """Pools one axis to `count` windows."""
    size = x.shape[axis]
    if isinstance(size, int) and size == 0:
        _check_count(size, count)
        return jnp.zeros((*x.shape[:axis], count, *x.shape[axis + 1 :]), x.dtype)
    if isinstance(size, int) and size % count == 0:
        shape = (*x.shape[:axis], count, size // count, *x.shape[axis + 1 :])
        return (largest if mode == "max" else jnp.mean)(x.reshape(shape), axis=axis + 1)
    cells, sizes = _windows(size, count)
    # (..., count, width, ...): a window's last cell repeats up to the width of the widest one
    windows = jnp.take(x, cells, axis=axis)
    if mode == "max":
        return largest(windows, axis + 1)
    inside = jnp.arange(cells.shape[1]).reshape(1, -1) < sizes.reshape(-1, 1)
    inside = inside.reshape((*inside.shape, *(1,) * (x.ndim - axis - 1)))
    inside = jnp.expand_dims(inside, range(axis))
    total = jnp.sum(jnp.where(inside, windows, jnp.zeros_like(windows)), axis=axis + 1)
    return total / align(sizes.astype(x.dtype), x.ndim, axis)


def _check_count(size: int, count: int) -> None:
    """Rejects a number of windows that would fill the memory."""
    if count > max(_WINDOWS, size):
        raise ValueError(
            f"adaptive pooling: expected an output_size of at most {_WINDOWS}, or of the axis, "
            f"received {count}. Use UpSampling or Resizing to enlarge an axis."
        )


def _windows(size: Any, count: int) -> tuple[Any, Any]:
    """The cells of each window (count, width), and how many of them differ (count,).

    NumPy where the size is known: the indices are constants of the program then.
    """
    known = isinstance(size, int)
    _check_count(size if known else 0, count)
    if known and size + count > _CELLS:
        raise ValueError(
            f"adaptive pooling: an axis of {size} cells in {count} windows, of which more than "
            f"{_CELLS} cells would have to be named. Give a number of windows that divides the "
            "axis, or cut it first."
        )
    xp = np if known else jnp
    index = xp.arange(count)
    start, stop = index * size // count, -(-(index + 1) * size // count)
    width = int(np.max(stop - start)) if known else -(-size // count) + 1
    cells = start.reshape(-1, 1) + xp.arange(width).reshape(1, -1)
    return xp.minimum(cells, stop.reshape(-1, 1) - 1), stop - start


class _AdaptivePooling(Layer):
    """Reduces `rank` axes to `output_size` windows."""

    output_size: tuple[int, ...] = option()
    data_format: str = option(default=None, convert=data_format_name)

    rank: ClassVar[int]

    @property
    def input_spec(self) -> InputSpec:
        return InputSpec(ndim=self.rank + 2)


class _AdaptiveAveragePooling(_AdaptivePooling):
    """Takes the mean of each window, 0 where it has no cells; integers become floats."""

    def call(self, x: jax.Array) -> jax.Array:
        x = x.astype(self.policy.compute_dtype)
        return adaptive_pool(x, self.output_size, "average", self.data_format)


class _AdaptiveMaxPooling(_AdaptivePooling):
    """Takes the largest value of each window, 0 where it has no cells."""

    def call(self, x: jax.Array) -> jax.Array:
        return adaptive_pool(x, self.output_size, "max", self.data_format)


class AdaptiveAveragePooling1D(_AdaptiveAveragePooling):
    """Takes the mean of each of `output_size` windows of a sequence.

    Integers become floats. An axis of length 0 gives 0.

    Args:
        output_size: the number `n` of windows.
        data_format: "channels_last" (None means the same) for inputs (b, t, c), or
            "channels_first" for (b, c, t).

    Shapes:
        (b, t, c) -> (b, n, c).

    Raises:
        ValueError: for sizes below 1, and inputs without a channel axis.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x = jnp.arange(6.0).reshape(1, 6, 1)
        >>> fk.layers.AdaptiveAveragePooling1D(3)(x)[0, :, 0]
        Array([0.5, 2.5, 4.5], dtype=float32)
    """

    output_size: tuple[int, ...] = option(convert=sizes(1))

    rank: ClassVar[int] = 1


class AdaptiveAveragePooling2D(_AdaptiveAveragePooling):
    """Takes the mean of each of `output_size` windows of an image.

    Integers become floats. An axis of length 0 gives 0.

    Args:
        output_size: the numbers `n` and `m` of windows along height and width, one integer where they
            are equal.
        data_format: "channels_last" (None means the same) for inputs (b, h, w, c), or
            "channels_first" for (b, c, h, w).

    Shapes:
        (b, h, w, c) -> (b, n, m, c).

    Raises:
        ValueError: for sizes below 1, and inputs without a channel axis.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x = jnp.arange(16.0).reshape(1, 4, 4, 1)
        >>> fk.layers.AdaptiveAveragePooling2D(2)(x)[0, :, :, 0]
        Array([[ 2.5,  4.5],
               [10.5, 12.5]], dtype=float32)
    """

    output_size: tuple[int, ...] = option(convert=sizes(2))

    rank: ClassVar[int] = 2


class AdaptiveAveragePooling3D(_AdaptiveAveragePooling):
    """Takes the mean of each of `output_size` windows of a volume.

    Integers become floats. An axis of length 0 gives 0.

    Args:
        output_size: the numbers of windows along the three axes, one integer where they are equal.
        data_format: "channels_last" (None means the same) for inputs (b, d1, d2, d3, c), or
            "channels_first" for (b, c, d1, d2, d3).

    Shapes:
        (b, d1, d2, d3, c) -> (b, n1, n2, n3, c).

    Raises:
        ValueError: for sizes below 1, and inputs without a channel axis.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x = jnp.arange(64.0).reshape(1, 4, 4, 4, 1)
        >>> fk.layers.AdaptiveAveragePooling3D(2)(x)[0, :, :, 0, 0]
        Array([[10.5, 18.5],
               [42.5, 50.5]], dtype=float32)
    """

    output_size: tuple[int, ...] = option(convert=sizes(3))

    rank: ClassVar[int] = 3


class AdaptiveMaxPooling1D(_AdaptiveMaxPooling):
    """Takes the largest value of each of `output_size` windows of a sequence.

    An axis of length 0 gives 0.

    Args:
        output_size: the number `n` of windows.
        data_format: "channels_last" (None means the same) for inputs (b, t, c), or
            "channels_first" for (b, c, t).

    Shapes:
        (b, t, c) -> (b, n, c).

    Raises:
        ValueError: for sizes below 1, and inputs without a channel axis.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x = jnp.arange(6.0).reshape(1, 6, 1)
        >>> fk.layers.AdaptiveMaxPooling1D(3)(x)[0, :, 0]
        Array([1., 3., 5.], dtype=float32)
    """

    output_size: tuple[int, ...] = option(convert=sizes(1))

    rank: ClassVar[int] = 1


class AdaptiveMaxPooling2D(_AdaptiveMaxPooling):
    """Takes the largest value of each of `output_size` windows of an image.

    An axis of length 0 gives 0.

    Args:
        output_size: the numbers `n` and `m` of windows along height and width, one integer where they
            are equal.
        data_format: "channels_last" (None means the same) for inputs (b, h, w, c), or
            "channels_first" for (b, c, h, w).

    Shapes:
        (b, h, w, c) -> (b, n, m, c).

    Raises:
        ValueError: for sizes below 1, and inputs without a channel axis.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x = jnp.arange(16.0).reshape(1, 4, 4, 1)
        >>> fk.layers.AdaptiveMaxPooling2D(2)(x)[0, :, :, 0]
        Array([[ 5.,  7.],
               [13., 15.]], dtype=float32)
    """

    output_size: tuple[int, ...] = option(convert=sizes(2))

    rank: ClassVar[int] = 2


class AdaptiveMaxPooling3D(_AdaptiveMaxPooling):
    """Takes the largest value of each of `output_size` windows of a volume.

    An axis of length 0 gives 0.

    Args:
        output_size: the numbers of windows along the three axes, one integer where they are equal.
        data_format: "channels_last" (None means the same) for inputs (b, d1, d2, d3, c), or
            "channels_first" for (b, c, d1, d2, d3).

    Shapes:
        (b, d1, d2, d3, c) -> (b, n1, n2, n3, c).

    Raises:
        ValueError: for sizes below 1, and inputs without a channel axis.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x = jnp.arange(64.0).reshape(1, 4, 4, 4, 1)
        >>> fk.layers.AdaptiveMaxPooling3D(2)(x)[0, :, :, 0, 0]
        Array([[21., 29.],
               [53., 61.]], dtype=float32)
    """

    output_size: tuple[int, ...] = option(convert=sizes(3))

    rank: ClassVar[int] = 3
