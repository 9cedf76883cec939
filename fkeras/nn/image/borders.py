"""Padding and cropping of images by rows and columns."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fkeras.nn.image.layout import as_batch
from fkeras.nn.image.resizing import cut
from fkeras.nn.numerics.array_types import Numbers


def _edges(
    function: str,
    axis: str,
    before: int | None,
    after: int | None,
    target: int | None,
    names: tuple,
) -> None:
    # any two of the three sizes determine the third; a redundant one could contradict them
    sizes = (before, after, target)
    received = ", ".join(f"{name}={value}" for name, value in zip(names, sizes, strict=True))
    if sizes.count(None) != 1:
        raise ValueError(
            f"{function}: expected exactly two of {', '.join(names)}, received {received}. Two of "
            f"them and the {axis} of the images determine the third."
        )
    if any(isinstance(value, int) and value < 0 for value in sizes):
        raise ValueError(
            f"{function}: expected numbers of pixels of 0 or more, received {received}. "
            f"{'Crop' if function == 'pad_images' else 'Pad'} instead of using negative ones."
        )


def pad_images(
    images: Numbers,
    top_padding: int | None = None,
    left_padding: int | None = None,
    bottom_padding: int | None = None,
    right_padding: int | None = None,
    target_height: int | None = None,
    target_width: int | None = None,
    data_format: str | None = None,
) -> jax.Array:
    """Pads images with zeros.

    Give two of the three sizes of each direction; they determine the third.

    Args:
        top_padding: rows above.
        left_padding: columns on the left.
        bottom_padding: rows below.
        right_padding: columns on the right.
        target_height: height of the result.
        target_width: width of the result.

    Returns:
        An array of the new size.

    Raises:
        ValueError: unless exactly two of three sizes are given and no size becomes negative.

    Example:
        >>> import jax.numpy as jnp
        >>> pad_images(jnp.ones((1, 2, 1)), 1, 0, target_height=2, target_width=3)[..., 0]
        Array([[0., 0., 0.],
               [1., 1., 0.]], dtype=float32)
    """
    rows = ("top_padding", "bottom_padding", "target_height")
    columns = ("left_padding", "right_padding", "target_width")
    _edges("pad_images", "height", top_padding, bottom_padding, target_height, rows)
    _edges("pad_images", "width", left_padding, right_padding, target_width, columns)
    batch, unbatch = as_batch(jnp.asarray(images), data_format)
    top, bottom = _filled(batch.shape[1], top_padding, bottom_padding, target_height)
    left, right = _filled(batch.shape[2], left_padding, right_padding, target_width)
    height, width = batch.shape[1] + top + bottom, batch.shape[2] + left + right
    if min(top, bottom, left, right) < 0:
        raise ValueError(
            "pad_images: expected a target of at least the size of the padded images, received "
            f"images of {batch.shape[1]} x {batch.shape[2]} and a target of {height} x {width}. "
            "Crop them with crop_images, or pad less."
        )
    return unbatch(cut(batch, (-top, -left, height, width)))


def _filled(size: int, before: int | None, after: int | None, target: int | None) -> tuple:
    """Returns the padding before and after; `_edges` checked that two of the three are given."""
    if before is not None and after is not None:
        return before, after
    assert target is not None
    if before is not None:
        return before, target - before - size
    assert after is not None
    return target - after - size, after


def crop_images(
    images: Numbers,
    top_cropping: int | None = None,
    left_cropping: int | None = None,
    bottom_cropping: int | None = None,
    right_cropping: int | None = None,
    target_height: int | None = None,
    target_width: int | None = None,
    data_format: str | None = None,
) -> jax.Array:
    """Crops rows and columns from the borders of images.

    Give two of the three sizes of each direction; they determine the third.

    Args:
        top_cropping: rows above.
        left_cropping: columns on the left.
        bottom_cropping: rows below.
        right_cropping: columns on the right.
        target_height: height of the result.
        target_width: width of the result.

    Returns:
        An array of the new size.

    Raises:
        ValueError: if not exactly two of three sizes are given, if a size is negative, or if the
            crop leaves the images or has no pixels.

    Example:
        >>> import jax.numpy as jnp
        >>> image = jnp.arange(9.0).reshape(3, 3, 1)
        >>> crop_images(image, 0, 0, 2, 1)[..., 0]
        Array([[0., 1.]], dtype=float32)
    """
    rows = ("top_cropping", "bottom_cropping", "target_height")
    columns = ("left_cropping", "right_cropping", "target_width")
    _edges("crop_images", "height", top_cropping, bottom_cropping, target_height, rows)
    _edges("crop_images", "width", left_cropping, right_cropping, target_width, columns)
    batch, unbatch = as_batch(jnp.asarray(images), data_format)
    top, height = _part(batch.shape[1], top_cropping, bottom_cropping, target_height)
    left, width = _part(batch.shape[2], left_cropping, right_cropping, target_width)
    fits = top + height <= batch.shape[1] and left + width <= batch.shape[2]
    if min(top, left) < 0 or min(height, width) < 1 or not fits:
        raise ValueError(
            f"crop_images: expected a part of at least one pixel within the images, received "
            f"images of {batch.shape[1]} x {batch.shape[2]} and the part of {height} x {width} "
            f"from ({top}, {left}). Crop less, or give larger images."
        )
    return unbatch(cut(batch, (top, left, height, width)))


def _part(size: int, before: int | None, after: int | None, target: int | None) -> tuple[int, int]:
    """Returns the part's start and length; `_edges` checked that two of the three are given."""
    if before is not None and target is not None:
        return before, target
    assert after is not None
    if before is not None:
        return before, size - before - after
    assert target is not None
    return size - target - after, target
