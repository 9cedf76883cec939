"""Affine and perspective transforms of images: each pixel of the output samples the input."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fkeras.nn.image.layout import as_batch, one_of
from fkeras.nn.numerics.array_types import Numbers
from fkeras.nn.warping.sampling import FILL_MODES, INTERPOLATIONS, sample


def grid(height: int, width: int) -> tuple[jax.Array, jax.Array]:
    """Returns the coordinates (y, x) of each pixel, as two arrays (1, h, w)."""
    shape = (1, height, width)
    rows = jnp.broadcast_to(jnp.arange(height, dtype="float32")[None, :, None], shape)
    return rows, jnp.broadcast_to(jnp.arange(width, dtype="float32")[None, None, :], shape)


def warp(
    images: jax.Array,
    y: jax.Array,
    x: jax.Array,
    interpolation: str = "bilinear",
    fill_mode: str = "constant",
    fill_value: Any = 0.0,
) -> jax.Array:
    """Samples images at one point for each output pixel.

    Args:
        y: rows of the points, (b, h2, w2).
        x: columns of the points, (b, h2, w2).
        fill_mode: values outside the image, as in `map_coordinates`.

    Returns:
        An array of shape (b, h2, w2, c).
    """
    one_of("interpolation", interpolation, *INTERPOLATIONS)
    one_of("fill_mode", fill_mode, *FILL_MODES)
    order = INTERPOLATIONS.index(interpolation)
    return jax.vmap(lambda image, v, u: sample(image, (v, u), order, fill_mode, fill_value))(
        images, y, x
    )


def warp_by_matrix(
    images: jax.Array,
    matrix: jax.Array,
    interpolation: str = "bilinear",
    fill_mode: str = "constant",
    fill_value: Any = 0.0,
) -> jax.Array:
    """Samples images at `matrix @ (x, y, 1)` for each output pixel (x, y).

    Args:
        matrix: array of shape (b, 3, 3).
        fill_mode: values outside the image, as in `map_coordinates`.

    Returns:
        An array like `images`.
    """
    y, x = grid(images.shape[1], images.shape[2])
    (a0, a1, a2), (b0, b1, b2), (c0, c1, c2) = (
        [matrix[:, row, column].astype("float32")[:, None, None] for column in range(3)]
        for row in range(3)
    )
    k = c0 * x + c1 * y + c2
    # a point at infinity is outside of the image; the division must not give 0 / 0
    k = jnp.where(k == 0, jnp.finfo(k.dtype).eps, k)
    u, v = (a0 * x + a1 * y + a2) / k, (b0 * x + b1 * y + b2) / k
    return warp(images, v, u, interpolation, fill_mode, fill_value)


def matrix_of(transform: jax.Array) -> jax.Array:
    """Returns the matrices (b, 3, 3) of transforms (b, 8); the last entry is 1.

    Args:
        transform: (b, 8), as for `affine_transform`.
    """
    last = jnp.ones((*transform.shape[:-1], 1), transform.dtype)
    entries = jnp.concatenate((transform, last), axis=-1)
    return jnp.reshape(entries, (*transform.shape[:-1], 3, 3))


def affine_transform(
    images: Numbers,
    transform: Numbers,
    interpolation: str = "bilinear",
    fill_mode: str = "constant",
    fill_value: float = 0.0,
    data_format: str | None = None,
) -> jax.Array:
    """Applies affine or perspective transforms to images.

    With the transform (a0, a1, a2, b0, b1, b2, c0, c1), output pixel (x, y) samples the input at
    ((a0 x + a1 y + a2) / k, (b0 x + b1 y + b2) / k), where k = c0 x + c1 y + 1. Keras documents k
    but ignores it on JAX, which makes no difference if c0 and c1 are 0.

    Args:
        transform: array of shape (b, 8), or (8,) for all images.
        fill_mode: values outside the image: "constant", "nearest", "wrap", "mirror" or "reflect",
            as in `map_coordinates`.

    Returns:
        An array like `images`.

    Raises:
        ValueError: for a wrong rank of images or transform, and for unknown strings.

    Example:
        >>> import jax.numpy as jnp
        >>> image = jnp.arange(4.0).reshape(2, 2, 1)
        >>> mirror = jnp.array([-1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0])
        >>> affine_transform(image, mirror)[..., 0]
        Array([[1., 0.],
               [3., 2.]], dtype=float32)
    """
    transform = jnp.asarray(transform)
    if transform.ndim not in (1, 2) or transform.shape[-1] != 8:
        raise ValueError(
            f"affine_transform: expected a transform of shape (8,) or (b, 8), received "
            f"{transform.shape}. Its entries are a0, a1, a2, b0, b1, b2, c0, c1."
        )
    batch, unbatch = as_batch(images, data_format)
    matrix = _for_batch(matrix_of(jnp.atleast_2d(transform)), batch)
    return unbatch(warp_by_matrix(batch, matrix, interpolation, fill_mode, fill_value))


def _for_batch(matrix: jax.Array, batch: jax.Array) -> jax.Array:
    if matrix.shape[0] == 1:
        return jnp.broadcast_to(matrix, (batch.shape[0], *matrix.shape[1:]))
    return matrix


def homography(start_points: jax.Array, end_points: jax.Array) -> jax.Array:
    """Computes the transforms that map `end_points` to `start_points`.

    Args:
        start_points: four points (x, y) of each input image, array of shape (b, 4, 2).
        end_points: positions of these points in each output image, array of shape (b, 4, 2).

    Returns:
        An array of shape (b, 8), as for `affine_transform`; not finite if three of the points are
        collinear.
    """
    start_points, end_points = (
        jnp.asarray(p).astype("float32") for p in (start_points, end_points)
    )
    target = jnp.concatenate((start_points[..., 0], start_points[..., 1]), axis=-1)
    x, y = end_points[..., 0], end_points[..., 1]
    points = jnp.stack((x, y, jnp.ones_like(x)), axis=-1)
    zeros = jnp.zeros_like(points)
    linear = jnp.concatenate(
        (
            jnp.concatenate((points, zeros), axis=-1),
            jnp.concatenate((zeros, points), axis=-1),
        ),
        axis=1,
    )
    repeated = jnp.concatenate((end_points, end_points), axis=1)
    # eight linear equations in eight entries; the ninth entry is fixed at 1
    system = jnp.concatenate((linear, -target[..., None] * repeated), axis=-1)
    return jnp.linalg.solve(system, target[..., None])[..., 0]


def perspective_transform(
    images: Numbers,
    start_points: Numbers,
    end_points: Numbers,
    interpolation: str = "bilinear",
    fill_value: float = 0.0,
    data_format: str | None = None,
) -> jax.Array:
    """Applies the perspective transform that moves four points of images to given positions.

    Args:
        start_points: four points (x, y) of the images, (b, 4, 2), or (4, 2) for all images.
        end_points: positions of these points in the output, array of the same shape.
        fill_value: value of output pixels outside the input image.

    Returns:
        An array like `images`.

    Raises:
        ValueError: for a wrong rank of images, and wrong shapes of points.

    Example:
        >>> import jax.numpy as jnp
        >>> image = jnp.arange(9.0).reshape(3, 3, 1)
        >>> square = jnp.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [2.0, 2.0]])
        >>> moved = perspective_transform(image, square, square + 1.0, "nearest")
        >>> moved[..., 0]
        Array([[0., 0., 0.],
               [0., 0., 1.],
               [0., 3., 4.]], dtype=float32)
    """
    points = [jnp.asarray(p) for p in (start_points, end_points)]
    for name, p in zip(("start_points", "end_points"), points, strict=True):
        if p.ndim not in (2, 3) or p.shape[-2:] != (4, 2) or p.shape != points[0].shape:
            raise ValueError(
                f"perspective_transform: {name}: expected the shape (4, 2) or (b, 4, 2), the same "
                f"for both, received {points[0].shape} and {points[1].shape}. Give four (x, y)."
            )
    start, end = (p[None] if p.ndim == 2 else p for p in points)
    batch, unbatch = as_batch(images, data_format)
    matrix = _for_batch(matrix_of(homography(start, end)), batch)
    return unbatch(warp_by_matrix(batch, matrix, interpolation, "constant", fill_value))
