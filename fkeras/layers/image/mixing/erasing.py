"""`RandomErasing`: random rectangles of images filled with a color or noise."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk
from fkeras.layers.image.common.base import ImageShape, RandomImageLayer
from fkeras.layers.image.common.factors import applied, factor_range, uniform
from fkeras.layers.image.common.patches import patches
from fkeras.layers.image.common.values import value_range
from fkeras.nn.image.layout import image_axes

_paint = fk.either(
    fk.real(), fk.several(fk.real(), "three of them for red, green and blue"), optional=True
)


def _fill_value(value: fk.Field) -> Any:
    numbers = _paint(value)
    if isinstance(numbers, tuple) and len(numbers) not in (1, 3):
        raise ValueError(
            "expected a number, three numbers for red, green and blue, or None for noise, "
            f"received {value!r}. Give 0 for black."
        )
    return numbers


class RandomErasing(RandomImageLayer):
    """Fills a random rectangle of some images in training; changes nothing in inference.

    Args:
        factor: probability: two numbers from 0 to 1 between which each image draws its
            probability, or one number f for (0, f); (1, 1) to change all images.
        scale: square of the rectangle's sides as fractions of the image's sides, two numbers from
            0 to 1 between which each side draws, or one number s for (0, s).
        fill_value: value of the rectangle: a number, three numbers for red, green and blue, or
            None for normal noise with the highest value of a pixel as standard deviation.
        value_range: (lowest, highest) value of a pixel; the rectangle's values are clipped to it.
        data_format: "channels_last" (also None) or "channels_first". (Keras applies three numbers
            along the width of "channels_first" images.)

    Raises:
        ValueError: for factors and scales outside of [0, 1], and three numbers for images without
            3 channels; in training without a key.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.RandomErasing((1, 1), (0.25, 0.25), fill_value=9)
        >>> y = layer(jnp.zeros((1, 4, 4, 1)), training=True, key=jax.random.key(0))
        >>> float(y.sum())
        36.0

    References:
        Zhong et al., 2017, Random Erasing Data Augmentation, https://arxiv.org/abs/1708.04896
    """

    factor: fk.Range = fk.option(default=1.0, convert=factor_range(0, 1))
    scale: fk.Range = fk.option(default=(0.02, 0.33), convert=factor_range(0, 1))
    fill_value: fk.OptionalNumbers = fk.option(default=None, convert=_fill_value)
    value_range: fk.Range = fk.option(default=(0, 255), convert=value_range)
    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)

    def draw(self, key: jax.Array, shape: ImageShape) -> fk.Tree:
        """Draws {"apply_erasing": (b,), "batch_masks": (b, h, w, 1), "fill_value"}."""
        apply_key, size_key, position_key, fill_key = jax.random.split(key, 4)
        # the scale is an area: its root is a side
        side_fractions = jnp.sqrt(uniform(size_key, (shape.batch, 2), self.scale))
        return {
            "apply_erasing": applied(apply_key, shape.batch, self.factor),
            "batch_masks": patches(
                position_key, shape, side_fractions[:, 0], side_fractions[:, 1], self.data_format
            ),
            "fill_value": jnp.clip(self._paint(fill_key, shape), *self.value_range),
        }

    def _paint(self, key: jax.Array, shape: ImageShape) -> jax.Array:
        b, h, w, c = shape
        axis = image_axes(4, self.data_format)[2]
        if self.fill_value is None:
            noise_shape = (b, h, w, c) if axis == 3 else (b, c, h, w)
            return jax.random.normal(key, noise_shape, "float32") * self.value_range[1]
        paint = jnp.asarray(self.fill_value, "float32")
        if paint.ndim and c != 3:
            raise ValueError(
                f"{self._where}: expected images of 3 channels for fill_value={self.fill_value}, "
                f"received {c}. Give one number."
            )
        return fk.align(jnp.atleast_1d(paint), 4, axis)

    def transform_images(self, images: jax.Array, transformation: fk.Tree) -> jax.Array:
        selected = jnp.reshape(transformation["apply_erasing"], (-1, 1, 1, 1))
        paint = transformation["fill_value"].astype(images.dtype)
        return jnp.where(selected & transformation["batch_masks"], paint, images)
