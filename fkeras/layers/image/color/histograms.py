"""Deterministic contrast and histogram layers."""

from __future__ import annotations

from typing import ClassVar

import jax

from fkeras.layers.common import authoring as fk
from fkeras.layers.image.common.base import ImageLayer
from fkeras.layers.image.common.values import value_range
from fkeras.nn.image.adjustments import auto_contrast
from fkeras.nn.image.histograms import equalize, equalize_tiles


class AutoContrast(ImageLayer):
    """Stretches each channel of each image to the whole value range, in inference too.

    Constant channels are unchanged.

    Args:
        data_format: "channels_last" (also None) or "channels_first". (Keras uses the same axes
            for both, which mixes the channels of "channels_first" images.)

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.AutoContrast()(jnp.array([[[50], [100], [75]]])).ravel()
        Array([  0. , 255. , 127.5], dtype=float32)
    """

    value_range: fk.Range = fk.option(default=(0, 255), convert=value_range)
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name, kw_only=True)

    def transform_images(self, images: jax.Array, transformation: fk.Tree) -> jax.Array:
        return auto_contrast(images, self.value_range, self.data_format)


class Equalization(ImageLayer):
    """Equalizes the histogram of each channel of each image, in inference too.

    (Keras documents the same, but counts the levels of the whole batch together, so that the result
    for an image depends on the other images, and changes nothing with `training=False`.)

    Args:
        bins: number of levels.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.Equalization()(jnp.array([[[10], [11], [12]]])).ravel()
        Array([  0., 128., 255.], dtype=float32)
    """

    value_range: fk.Range = fk.option(default=(0, 255), convert=value_range)
    bins: fk.Integer = fk.option(default=256, convert=fk.integer(minimum=1))
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)

    def transform_images(self, images: jax.Array, transformation: fk.Tree) -> jax.Array:
        return equalize(images, self.bins, self.value_range, self.data_format)


class ContrastLimitedAdaptiveHistogramEqualization(ImageLayer):
    """Equalizes the histograms of tiles of each image, in inference too.

    Each pixel takes a weighted mean of the values in the tables of the four surrounding tiles. The
    histograms are counted by scatter-add, which needs no one-hot encoding of every pixel.

    Args:
        clip_limit: limit of the count of a level, as a multiple of the mean count; 0 for no limit.
        tile_grid_size: number of tiles along the height and along the width.

    Shapes:
        (b, h, w, c) -> (b, h, w, c), the same without b. Integer images stay integer, truncated.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.ContrastLimitedAdaptiveHistogramEqualization((0, 255), 0, (1, 1))
        >>> layer(jnp.array([[[10.0], [11.0]], [[12.0], [13.0]]])).ravel()
        Array([ 63.75, 127.5 , 191.25, 255.  ], dtype=float32)

    References:
        Zuiderveld, 1994, Contrast limited adaptive histogram equalization, Graphics Gems IV
    """

    value_range: fk.Range = fk.option(
        default=(0, 255),
        convert=value_range,
    )
    clip_limit: fk.Real = fk.option(default=4.0, convert=fk.real())
    tile_grid_size: fk.Sizes = fk.option(default=(8, 8), convert=fk.sizes(2))
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)

    # `equalize_tiles` computes in float32 for every dtype, and the result keeps the dtype of the
    # images
    casts_images: ClassVar[bool] = False

    def transform_images(self, images: jax.Array, transformation: fk.Tree) -> jax.Array:
        ranges = self.value_range, self.data_format
        return equalize_tiles(images, self.clip_limit, self.tile_grid_size, *ranges).astype(
            images.dtype
        )
