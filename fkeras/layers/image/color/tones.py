"""`RandomBrightness` and `RandomContrast`: brightness and contrast."""

from __future__ import annotations

import jax
import numpy as np

from fkeras.layers.common import authoring as fk
from fkeras.layers.image.common.base import ImageShape, RandomImageLayer
from fkeras.layers.image.common.factors import factor_range, uniform
from fkeras.layers.image.common.values import value_range
from fkeras.nn.image.adjustments import adjust_brightness, adjust_contrast


class RandomBrightness(RandomImageLayer):
    """Adds a random amount to all pixels of an image in training; changes nothing in inference.

    Args:
        factor: brightness shift as a fraction of the value range, from -1 (black) to 1 (white): two
            numbers between which each image draws, or one number f for (-f, f).

    Raises:
        ValueError: for factors outside of [-1, 1]; in training without a key.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.RandomBrightness((0.2, 0.2))
        >>> layer(jnp.full((1, 1, 1), 100), training=True, key=jax.random.key(0)).ravel()
        Array([151.], dtype=float32)
    """

    factor: fk.Range = fk.option(convert=factor_range(-1, 1))
    value_range: fk.Range = fk.option(default=(0, 255), convert=value_range)
    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name, kw_only=True)

    def draw(self, key: jax.Array, shape: ImageShape) -> fk.Tree:
        """Draws {"rgb_delta": (b, 1, 1, 1)}: the amount to add."""
        low, high = self.value_range
        return {"rgb_delta": uniform(key, (shape.batch, 1, 1, 1), self.factor) * (high - low)}

    def transform_images(self, images: jax.Array, transformation: fk.Tree) -> jax.Array:
        return adjust_brightness(images, transformation["rgb_delta"], self.value_range)


_contrast = factor_range(0, 1)


def contrast_range(value: fk.Field) -> tuple[float, float]:
    """Converts to (lower, upper); a single number f means (f, f)."""
    is_pair = isinstance(value, tuple | list | np.ndarray)
    return _contrast(value if is_pair else (value, value))


class RandomContrast(RandomImageLayer):
    """Multiplies the contrast of each image at random in training; changes nothing in inference.

    The layer computes `(x - mean) * amount + mean`, with the mean of each channel.

    Args:
        factor: each image draws its amount between `1 - lower` and `1 + upper`, where the factor
            is (lower, upper), or one number from 0 to 1 for both. (Keras documents this too, but
            implements one number f as (0, f), so that contrast never decreases. Keras reads a
            config written by this layer as this layer does.)

    Raises:
        ValueError: for factors outside of [0, 1]; in training without a key.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.RandomContrast((0, 0.5))
        >>> x = jnp.array([[[100.0], [110.0]]])
        >>> y = layer(x, training=True, key=jax.random.key(0))
        >>> bool(y[0, 1, 0] - y[0, 0, 0] >= 10)
        True
    """

    factor: fk.Range = fk.option(convert=contrast_range)
    value_range: fk.Range = fk.option(default=(0, 255), convert=value_range)
    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name, kw_only=True)

    def draw(self, key: jax.Array, shape: ImageShape) -> fk.Tree:
        """Draws {"contrast_factor": (b, 1, 1, 1)}: the factor of the contrast."""
        lower, upper = self.factor
        amounts = uniform(key, (shape.batch, 1, 1, 1), (1.0 - lower, 1.0 + upper))
        return {"contrast_factor": amounts}

    def transform_images(self, images: jax.Array, transformation: fk.Tree) -> jax.Array:
        amount = transformation["contrast_factor"]
        return adjust_contrast(images, amount, self.value_range, self.data_format)
