"""Interpolation between the cells of arrays, shared by all geometric transforms."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fkeras.nn.image.layout import one_of
from fkeras.nn.numerics.array_types import Numbers

FILL_MODES = ("constant", "nearest", "wrap", "mirror", "reflect")
INTERPOLATIONS = ("nearest", "bilinear")
# farther points are outside of every array, and this index still fits into int32
_FAR = 2.0**28


def _inside(index: jax.Array, size: int, fill_mode: str) -> jax.Array:
    """Maps each index to an index inside the array, as the fill mode continues the array."""
    if fill_mode == "wrap":
        return index % size
    if fill_mode == "mirror":
        if size == 1:
            return jnp.zeros_like(index)
        period = 2 * (size - 1)
        return jnp.abs((index + size - 1) % period - (size - 1))
    if fill_mode == "reflect":
        index = index % (2 * size)
        return jnp.minimum(index, 2 * size - 1 - index)
    # "constant" needs a valid index too: a mask in `sample` replaces the value later
    return jnp.clip(index, 0, size - 1)


def sample(
    array: jax.Array,
    coordinates: Sequence[jax.Array],
    order: int,
    fill_mode: str = "constant",
    fill_value: Any = 0.0,
) -> jax.Array:
    """Samples an array at points between its cells.

    Args:
        array: array whose first axes `coordinates` refer to; further axes are carried along.
        coordinates: for each of the first axes a floating array, all of the same shape (...).
        order: 0 for the nearest cell, 1 for linear interpolation.
        fill_mode: values outside the array, as in `map_coordinates`.

    Returns:
        An array of shape (..., carried axes), of the dtype of `array`.
    """
    dtype = array.dtype
    exact = jnp.issubdtype(dtype, jnp.floating)
    compute = dtype if dtype == jnp.float64 else jnp.dtype("float32")
    nodes = []
    for position, size in zip(coordinates, array.shape, strict=False):
        # at least float32: bfloat16 represents integers exactly only up to 256
        position = jnp.clip(position.astype(compute), -_FAR, _FAR)
        if order == 0:
            parts = [(lax.round(position).astype(jnp.int32), None)]
        else:
            low = jnp.floor(position)
            index, fraction = low.astype(jnp.int32), position - low
            parts = [(index, 1 - fraction), (index + 1, fraction)]
        nodes.append(
            [(_inside(i, size, fill_mode), (i >= 0) & (i < size), weight) for i, weight in parts]
        )
    carried = array.ndim - len(coordinates)

    def spread(x: jax.Array) -> jax.Array:
        return jnp.reshape(x, x.shape + (1,) * carried)

    terms = []
    # linear interpolation sums over the corners of the cell around each point
    for corner in itertools.product(*nodes):
        indices, valid, weights = zip(*corner, strict=True)
        values = array[indices].astype(compute)
        if fill_mode == "constant":
            within = spread(functools.reduce(jnp.logical_and, valid))
            values = jnp.where(within, values, jnp.asarray(fill_value, compute))
        if order == 1:
            values = values * spread(functools.reduce(jnp.multiply, weights))
        terms.append(values)
    total = functools.reduce(jnp.add, terms)
    if not exact:
        # a cast to an integer dtype truncates
        total = lax.round(total)
    return total.astype(dtype)


def map_coordinates(
    inputs: Numbers,
    coordinates: jax.Array | np.ndarray | Sequence[Numbers],
    order: int,
    fill_mode: str = "constant",
    fill_value: float = 0.0,
) -> jax.Array:
    """Samples an array at points between its cells, with one coordinate per axis.

    Args:
        inputs: array of any shape with n axes.
        coordinates: array of shape (n, ...), or n arrays: points in units of cells, from 0.
        order: 0 for the nearest cell, 1 for linear interpolation.
        fill_mode: values outside the array: "constant" (k k | a b c | k k),
            "nearest" (a a | a b c | c c), "wrap" (b c | a b c | a b), "mirror"
            (c b | a b c | b a) or "reflect" (b a | a b c | c b).
        fill_value: the k of "constant".

    Returns:
        An array of shape (...), of the dtype of `inputs`; integers are rounded.

    Raises:
        ValueError: if the number of coordinates is not the number of axes, and for another order
            or fill mode.

    Example:
        >>> import jax.numpy as jnp
        >>> map_coordinates(jnp.array([0.0, 10.0, 20.0]), jnp.array([[0.5, 3.0]]), 1, "reflect")
        Array([ 5., 20.], dtype=float32)
    """
    inputs = jnp.asarray(inputs)
    rows = [jnp.asarray(c) for c in coordinates]
    if len(rows) != inputs.ndim or inputs.ndim == 0:
        raise ValueError(
            f"map_coordinates: expected one row of coordinates for each axis of the inputs, "
            f"received {len(rows)} for the shape {inputs.shape}. Their first axis counts the "
            "axes: (n, ...)."
        )
    if rows[0].ndim == 0:
        raise ValueError(
            "map_coordinates: expected coordinates of 2 axes or more, received one number per "
            "axis. For a single point give the shape (n, 1)."
        )
    if order not in (0, 1):
        raise ValueError(
            f"map_coordinates: expected the order 0 (nearest) or 1 (linear), received {order!r}. "
            "Higher orders need spline filters; give 1."
        )
    one_of("fill_mode", fill_mode, *FILL_MODES)
    return sample(inputs, rows, order, fill_mode, fill_value)
