"""`RandomInvert`, `Solarization` and `RandomPosterization`: mappings of pixel values."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.layers.common import authoring as fk
from fkeras.layers.image.common.base import ImageShape, RandomImageLayer
from fkeras.layers.image.common.factors import applied, factor_range, uniform
from fkeras.layers.image.common.values import value_range
from fkeras.nn.image.adjustments import invert, posterize, solarize


class RandomInvert(RandomImageLayer):
    """Inverts some images in training; changes nothing in inference.

    The inverse of x is `lowest + highest - x`. (Keras computes `highest - x`, which leaves the
    range if the range does not start at 0.)

    Args:
        factor: probability: two numbers from 0 to 1 between which each image draws its
            probability, or one number f for (0, f); (1, 1) to invert all images.

    Raises:
        ValueError: for factors outside of [0, 1]; in training without a key.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.RandomInvert((1, 1))
        >>> layer(jnp.full((1, 1, 1), 55), training=True, key=jax.random.key(0)).ravel()
        Array([200.], dtype=float32)
    """

    factor: fk.Range = fk.option(default=1.0, convert=factor_range(0, 1))
    value_range: fk.Range = fk.option(default=(0, 255), convert=value_range)
    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)

    def draw(self, key: jax.Array, shape: ImageShape) -> fk.Tree:
        """Draws {"apply_inversion": (b,)}: the images to invert."""
        return {"apply_inversion": applied(key, shape.batch, self.factor)}

    def transform_images(self, images: jax.Array, transformation: fk.Tree) -> jax.Array:
        selected = jnp.reshape(transformation["apply_inversion"], (-1, 1, 1, 1))
        return jnp.where(selected, invert(images, self.value_range), images)


class Solarization(RandomImageLayer):
    """Inverts the pixels above a random threshold in training; changes nothing in inference.

    Args:
        addition_factor: amount added to all pixels first, as a fraction of the value range: two
            numbers from 0 to 1 between which each image draws, or one number f for (0, f). (Keras
            scales only the upper number, contrary to its documentation.)
        threshold_factor: threshold as a fraction of the value range, in the same form. With 0 all
            pixels are inverted.

    Raises:
        ValueError: for factors outside of [0, 1]; in training without a key.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.Solarization(threshold_factor=(0.5, 0.5))
        >>> layer(jnp.array([[[10], [200]]]), training=True, key=jax.random.key(0)).ravel()
        Array([10., 55.], dtype=float32)
    """

    addition_factor: fk.Range = fk.option(default=0.0, convert=factor_range(0, 1))
    threshold_factor: fk.Range = fk.option(default=0.0, convert=factor_range(0, 1))
    value_range: fk.Range = fk.option(default=(0, 255), convert=value_range)
    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name, kw_only=True)

    def draw(self, key: jax.Array, shape: ImageShape) -> fk.Tree:
        """Draws {"additions", "thresholds"}: (b, 1, 1, 1), both from 0 to 255."""
        # Keras's scale: from 0 to 255 for every value range
        keys, line = jax.random.split(key), (shape.batch, 1, 1, 1)
        return {
            "additions": uniform(keys[0], line, self.addition_factor) * 255,
            "thresholds": uniform(keys[1], line, self.threshold_factor) * 255,
        }

    def transform_images(self, images: jax.Array, transformation: fk.Tree) -> jax.Array:
        thresholds, additions = transformation["thresholds"], transformation["additions"]
        return solarize(images, thresholds, additions, self.value_range)


_one_to_eight = fk.integer(minimum=1, maximum=8)
_two_bits = fk.several(_one_to_eight, "two integers from 1 to 8")


def _bits(value: fk.Field) -> tuple[int, int]:
    if isinstance(value, tuple | list | np.ndarray):
        numbers = _two_bits(value)
        if len(numbers) == 2:
            return min(numbers), max(numbers)
    elif _one_to_eight.accepts(value):
        return 1, _one_to_eight(value)
    raise ValueError(
        "expected a number of bits from 1 to 8, or a pair of numbers, received "
        f"{fk.describe_value(value)}. For exactly 4 bits give (4, 4)."
    )


class RandomPosterization(RandomImageLayer):
    """Reduces each image to a random number of bits in training; changes nothing in inference.

    Args:
        factor: number of bits to keep: two integers from 1 to 8 between which each image draws,
            or one integer n for (1, n). (Keras never draws the upper integer.)
        value_range: (lowest, highest) value of a pixel; the range is quantized to 8 bits.

    Raises:
        ValueError: for factors that are not integers from 1 to 8; in training without a key.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.RandomPosterization((2, 2))
        >>> layer(jnp.array([[[100], [200]]]), training=True, key=jax.random.key(0)).ravel()
        Array([ 64., 192.], dtype=float32)
    """

    factor: fk.Converted[fk.AnyInteger | Sequence[fk.AnyInteger], tuple[int, int]] = fk.option(
        convert=_bits
    )
    value_range: fk.Range = fk.option(default=(0, 255), convert=value_range)
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)
    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))

    def draw(self, key: jax.Array, shape: ImageShape) -> fk.Tree:
        """Draws {"shift_factor": (b,)}: the number of bits to clear."""
        min_bits, max_bits = self.factor
        # randint excludes its upper end
        return {"shift_factor": 8 - jax.random.randint(key, (shape.batch,), min_bits, max_bits + 1)}

    def transform_images(self, images: jax.Array, transformation: fk.Tree) -> jax.Array:
        bits = 8 - jnp.reshape(transformation["shift_factor"], (-1, 1, 1, 1))
        return posterize(images, bits, self.value_range)
