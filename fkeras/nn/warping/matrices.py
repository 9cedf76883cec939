"""Matrices of affine transforms, from output points (x, y, 1) to input points."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp


def _matrices(
    rows: tuple[tuple[Any, Any, Any], tuple[Any, Any, Any]], like: jax.Array
) -> jax.Array:
    all_rows = (*rows, (0.0, 0.0, 1.0))
    cells = [
        jnp.broadcast_to(jnp.asarray(v, like.dtype), like.shape) for row in all_rows for v in row
    ]
    return jnp.reshape(jnp.stack(cells, axis=-1), (*like.shape, 3, 3))


def translation_matrix(dx: jax.Array, dy: jax.Array) -> jax.Array:
    """Returns the matrix that moves images by `dx` pixels to the right and `dy` pixels down.

    Args:
        dx: array of shape (b,).
        dy: array of shape (b,).

    Returns:
        An array of shape (b, 3, 3).
    """
    # negative: the matrix maps output places to input places
    return _matrices(((1.0, 0.0, -dx), (0.0, 1.0, -dy)), dx)


def rotation_matrix(angle: jax.Array, height: int, width: int) -> jax.Array:
    """Returns the matrix that rotates images about their center, counterclockwise.

    Args:
        angle: array of shape (b,), in degrees.

    Returns:
        An array of shape (b, 3, 3).
    """
    cos, sin = jnp.cos(angle * (math.pi / 180)), jnp.sin(angle * (math.pi / 180))
    # the center of the pixel grid stays in place
    x, y = (width - 1) / 2, (height - 1) / 2
    return _matrices(((cos, -sin, x - x * cos + y * sin), (sin, cos, y - x * sin - y * cos)), angle)


def zoom_matrix(
    height_zoom: jax.Array, width_zoom: jax.Array, height: int, width: int
) -> jax.Array:
    """Returns the matrix that shrinks images about their center; factors below 1 enlarge.

    Args:
        height_zoom: array of shape (b,).
        width_zoom: array of shape (b,).

    Returns:
        An array of shape (b, 3, 3).
    """
    # the center of the pixel grid stays in place
    x, y = (width - 1) / 2 * (1 - width_zoom), (height - 1) / 2 * (1 - height_zoom)
    return _matrices(((width_zoom, 0.0, x), (0.0, height_zoom, y)), width_zoom)


def shear_matrix(shear_x: jax.Array, shear_y: jax.Array) -> jax.Array:
    """Returns the matrix that shears images about their first pixel.

    Args:
        shear_x: shift of a row to the left for each row below the first, in pixels, (b,).
        shear_y: shift of a column upwards for each column right of the first, in pixels, (b,).

    Returns:
        An array of shape (b, 3, 3).
    """
    return _matrices(((1.0, shear_x, 0.0), (shear_y, 1.0, 0.0)), shear_x)
