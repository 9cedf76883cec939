"""Padding and cropping of borders: `ZeroPadding1D` to `3D`, `Cropping1D` to `3D`."""

from __future__ import annotations

from typing import Any

import jax

from fkeras.layers.common import authoring as fk
from fkeras.layers.common.ranks import OverImages, OverSequences, OverVolumes, Spatial
from fkeras.nn.numerics.axes import format_shape, spatial_axes
from fkeras.nn.resampling import Pairs, crop, zero_pad


def _pairs(rank: int) -> fk.Rule:
    """Returns a rule that converts an option to a pair (before, after) for each axis."""
    pair = fk.sizes(2, minimum=0)

    def parse(value: fk.Field) -> Any:
        if pair_of_all.accepts(value):
            return (pair(value),) * rank
        # for rank 2, (1, 2) means (height, width), as in Keras, and not (before, after)
        items = tuple(value) if isinstance(value, tuple | list) else ()
        fits = len(items) == rank and all(map(pair.accepts, items))
        return tuple(map(pair, items)) if fits else fk.REJECTED

    # one integer is the same for all axes and both sides
    pair_of_all = fk.integer(minimum=0)
    words = f"an integer of 0 or more, or for each of the {rank} axes an integer or (before, after)"
    return fk.Rule("integers", words, parse, limits=(0, rank), hint=f"Give {((1, 1),) * rank}.")


class _ZeroPadding(Spatial):
    """Adds zeros before and after each axis.

    Raises of the family:
        ValueError: for negative numbers, and inputs without a channel axis.
    """

    padding: fk.Borders = fk.option(default=1)
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)

    def call(self, x: jax.Array) -> jax.Array:
        # ZeroPadding1D stores one pair, the others a pair for each axis
        pairs: Any = (self.padding,) if self.rank == 1 else self.padding
        return zero_pad(x, pairs, self.data_format)


def _cropped(layer: Any, x: jax.Array, pairs: Pairs, data_format: str) -> jax.Array:
    # symbolic sizes cannot be compared, and pass
    for axis, (low, high) in zip(spatial_axes(x.ndim, data_format), pairs, strict=True):
        size = x.shape[axis]
        if isinstance(size, int) and size <= low + high:
            raise ValueError(
                f"{layer._where}: expected more than {low + high} cells on axis {axis}, because "
                f"cropping={layer.cropping} removes that many, received {format_shape(x.shape)}. "
                "Crop less, or give a larger input."
            )
    return crop(x, pairs, data_format)


class _Cropping(Spatial):
    """Removes cells before and after each axis.

    Raises of the family:
        ValueError: for negative numbers, and inputs without a remaining cell or a channel axis.
    """

    cropping: fk.Borders = fk.option(default=1)
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)

    def call(self, x: jax.Array) -> jax.Array:
        return _cropped(self, x, self.cropping, self.data_format)


class ZeroPadding1D(OverSequences, _ZeroPadding):
    """Adds zeros around a sequence.

    Args:
        padding: cells to add at both ends: one number, or (before, after).

    Shapes:
        (b, t, c) -> (b, t2, c).

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.ZeroPadding1D((1, 2))(jnp.ones((1, 2, 1)))[0, :, 0]
        Array([0., 1., 1., 0., 0.], dtype=float32)
    """

    padding: fk.Pair = fk.option(default=1, convert=fk.sizes(2, minimum=0))


class ZeroPadding2D(OverImages, _ZeroPadding):
    """Adds zeros around an image.

    Args:
        padding: cells to add: one number, (height, width), or ((top, bottom), (left, right)).

    Shapes:
        (b, h, w, c) -> (b, h2, w2, c).

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.ZeroPadding2D(((0, 1), (1, 1)))(jnp.ones((1, 1, 2, 1)))[0, :, :, 0]
        Array([[0., 1., 1., 0.],
               [0., 0., 0., 0.]], dtype=float32)
    """

    padding: fk.Borders = fk.option(default=1, convert=_pairs(2))


class ZeroPadding3D(OverVolumes, _ZeroPadding):
    """Adds zeros around a volume.

    Args:
        padding: cells to add: one number, one per axis, or (before, after) per axis.

    Shapes:
        (b, d1, d2, d3, c) -> (b, e1, e2, e3, c).

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> y = fk.layers.ZeroPadding3D(1)(jnp.ones((1, 2, 2, 2, 1)))
        >>> y.shape, float(y.sum())
        ((1, 4, 4, 4, 1), 8.0)
    """

    padding: fk.Borders = fk.option(default=1, convert=_pairs(3))


# no `data_format`: Keras's Cropping1D has no such argument
class Cropping1D(OverSequences):
    """Removes cells around a sequence.

    Args:
        cropping: cells to remove at both ends: one number, or (before, after).

    Shapes:
        (b, t, c) -> (b, t2, c).

    Raises:
        ValueError: for negative numbers, and inputs without a remaining cell or a channel axis.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x = jnp.arange(4.0).reshape(1, 4, 1)
        >>> fk.layers.Cropping1D((1, 2))(x)[0, :, 0]
        Array([1.], dtype=float32)
    """

    cropping: fk.Pair = fk.option(default=1, convert=fk.sizes(2, minimum=0))

    def call(self, x: jax.Array) -> jax.Array:
        return _cropped(self, x, (self.cropping,), "channels_last")


class Cropping2D(OverImages, _Cropping):
    """Removes cells around an image.

    Args:
        cropping: cells to remove: one number, (height, width), or ((top, bottom), (left, right)).

    Shapes:
        (b, h, w, c) -> (b, h2, w2, c).

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x = jnp.arange(16.0).reshape(1, 4, 4, 1)
        >>> fk.layers.Cropping2D(1)(x)[0, :, :, 0]
        Array([[ 5.,  6.],
               [ 9., 10.]], dtype=float32)
    """

    # Keras's default here is 0 cells, and 1 cell in Cropping1D and Cropping3D
    cropping: fk.Borders = fk.option(default=0, convert=_pairs(2))


class Cropping3D(OverVolumes, _Cropping):
    """Removes cells around a volume.

    Args:
        cropping: cells to remove: one number, one per axis, or (before, after) per axis.

    Shapes:
        (b, d1, d2, d3, c) -> (b, e1, e2, e3, c).

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x = jnp.arange(64.0).reshape(1, 4, 4, 4, 1)
        >>> fk.layers.Cropping3D(1)(x)[0, :, :, 0, 0]
        Array([[21., 25.],
               [37., 41.]], dtype=float32)
    """

    cropping: fk.Borders = fk.option(default=1, convert=_pairs(3))
