"""`RandomInvert`, `Solarization` and `RandomPosterization`: maps of pixel values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine import option
from fkeras.engine.config.converters import data_format_name, integer, several
from fkeras.engine.config.field_types import (
    AnyInteger,
    Converted,
    DataFormat,
    OptionalInteger,
    Range,
)
from fkeras.engine.messages.errors import describe_value
from fkeras.layers.image.common.base import ImageShape, RandomImageLayer
from fkeras.layers.image.common.factors import applied, factor_range, uniform
from fkeras.layers.image.common.values import value_range
from fkeras.nn.image.adjustments import invert, posterize, solarize


class RandomInvert(RandomImageLayer):
    """Makes negatives of some images in training; changes nothing in inference.

    The negative of x is `lowest + highest - x`. (Keras computes `highest - x`, which leaves a range
    that does not start from 0.)

    Args:
        factor: the probability: two numbers from 0 to 1 between which each image draws its own,
            or one number f for (0, f); (1, 1) to invert all.
        Other arguments: those of `RandomBrightness`.

    Shapes:
        (b, h, w, c) -> (b, h, w, c), the same without b.

    Raises:
        ValueError: for factors outside of [0, 1]; in training without a key.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.RandomInvert((1, 1))
        >>> layer(jnp.full((1, 1, 1), 55), training=True, key=jax.random.key(0)).ravel()
        Array([200.], dtype=float32)
    """

    factor: Range = option(default=1.0, convert=factor_range(0, 1))
    value_range: Range = option(default=(0, 255), convert=value_range)
    seed: OptionalInteger = option(default=None, convert=integer(optional=True))
    data_format: DataFormat = option(default=None, convert=data_format_name)

    def draw(self, key: jax.Array, shape: ImageShape) -> Any:
        """{"apply_inversion": (b,)}: which images."""
        return {"apply_inversion": applied(key, shape.batch, self.factor)}

    def transform_images(self, images: jax.Array, transformation: Any) -> jax.Array:
        chosen = jnp.reshape(transformation["apply_inversion"], (-1, 1, 1, 1))
        return jnp.where(chosen, invert(images, self.value_range), images)


class Solarization(RandomImageLayer):
    """Inverts the pixels above a random threshold in training; changes nothing in inference.

    Args:
        addition_factor: what is added to all pixels first, in shares of the value range: two
            numbers from 0 to 1 between which each image draws, or one number f for (0, f). (Keras
            scales the upper number only, against its documentation.)
        threshold_factor: the threshold, in shares of the value range, given in the same way. With
            0 all pixels are inverted.
        Other arguments: those of `RandomBrightness`.

    Shapes:
        (b, h, w, c) -> (b, h, w, c), the same without b.

    Raises:
        ValueError: for factors outside of [0, 1]; in training without a key.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.Solarization(threshold_factor=(0.5, 0.5))
        >>> layer(jnp.array([[[10], [200]]]), training=True, key=jax.random.key(0)).ravel()
        Array([10., 55.], dtype=float32)
    """

    addition_factor: Range = option(default=0.0, convert=factor_range(0, 1))
    threshold_factor: Range = option(default=0.0, convert=factor_range(0, 1))
    value_range: Range = option(default=(0, 255), convert=value_range)
    seed: OptionalInteger = option(default=None, convert=integer(optional=True))
    data_format: DataFormat = option(default=None, convert=data_format_name, kw_only=True)

    def draw(self, key: jax.Array, shape: ImageShape) -> Any:
        """{"additions", "thresholds"}: (b, 1, 1, 1), both from 0 to 255."""
        keys, line = jax.random.split(key), (shape.batch, 1, 1, 1)
        return {
            "additions": uniform(keys[0], line, self.addition_factor) * 255,
            "thresholds": uniform(keys[1], line, self.threshold_factor) * 255,
        }

    def transform_images(self, images: jax.Array, transformation: Any) -> jax.Array:
        thresholds, additions = transformation["thresholds"], transformation["additions"]
        return solarize(images, thresholds, additions, self.value_range)


_one_to_eight = integer(minimum=1, maximum=8)
_two_bits = several(_one_to_eight, "two integers from 1 to 8")


def _bits(value: Any) -> tuple[int, int]:
    if isinstance(value, tuple | list | np.ndarray):
        numbers = _two_bits(value)
        if len(numbers) == 2:
            return min(numbers), max(numbers)
    elif _one_to_eight.accepts(value):
        return 1, _one_to_eight(value)
    raise ValueError(
        "expected a number of bits from 1 to 8, or two of them, received "
        f"{describe_value(value)}. Give (4, 4) for 4 bits always."
    )


class RandomPosterization(RandomImageLayer):
    """Keeps a random number of bits of each image in training; changes nothing in inference.

    Args:
        factor: the number of bits that are kept: two integers from 1 to 8 between which each image
            draws, or one integer n for (1, n). (Keras never draws the upper one.)
        value_range: (lowest, highest) value of a pixel, which is written with 8 bits.
        Other arguments: those of `RandomBrightness`.

    Shapes:
        (b, h, w, c) -> (b, h, w, c), the same without b.

    Raises:
        ValueError: for factors that are no integers from 1 to 8; in training without a key.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.RandomPosterization((2, 2))
        >>> layer(jnp.array([[[100], [200]]]), training=True, key=jax.random.key(0)).ravel()
        Array([ 64., 192.], dtype=float32)
    """

    factor: Converted[AnyInteger | Sequence[AnyInteger], tuple[int, int]] = option(convert=_bits)
    value_range: Range = option(default=(0, 255), convert=value_range)
    data_format: DataFormat = option(default=None, convert=data_format_name)
    seed: OptionalInteger = option(default=None, convert=integer(optional=True))

    def draw(self, key: jax.Array, shape: ImageShape) -> Any:
        """{"shift_factor": (b,)}: how many bits become 0."""
        fewest, most = self.factor
        return {"shift_factor": 8 - jax.random.randint(key, (shape.batch,), fewest, most + 1)}

    def transform_images(self, images: jax.Array, transformation: Any) -> jax.Array:
        bits = 8 - jnp.reshape(transformation["shift_factor"], (-1, 1, 1, 1))
        return posterize(images, bits, self.value_range)
