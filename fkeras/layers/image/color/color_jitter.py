"""`RandomColorJitter`: random brightness, contrast, saturation and hue in sequence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from fkeras.layers.common import authoring as fk
from fkeras.layers.image.color.colors import RandomHue, RandomSaturation
from fkeras.layers.image.color.tones import RandomBrightness, RandomContrast, contrast_range
from fkeras.layers.image.common.base import ImageShape, RandomImageLayer
from fkeras.layers.image.common.factors import factor_range
from fkeras.layers.image.common.values import share_range, value_range


def _checked(rule: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns a converter that checks a factor with `rule`, and keeps the factor unchanged."""

    def convert(value: fk.Field) -> Any:
        if value is not None:
            rule(value)
        # the field keeps the user's value; the steps convert it again
        return value

    return convert


class RandomColorJitter(RandomImageLayer):
    """Changes brightness, contrast, saturation and hue at random in training, in this order.

    The layer changes nothing in inference.

    Args:
        brightness_factor: as in `RandomBrightness`; None for no change.
        contrast_factor: as in `RandomContrast`; None for no change.
        saturation_factor: as in `RandomSaturation`; None for no change.
        hue_factor: as in `RandomHue`; None for no change.

    Shapes:
        (b, h, w, 3) -> (b, h, w, 3), the same without b.

    Raises:
        ValueError: for factors that these layers reject; in training without a key.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.RandomColorJitter((0, 1), brightness_factor=(0.5, 0.5))
        >>> layer(jnp.zeros((1, 1, 3)), training=True, key=jax.random.key(0)).ravel()
        Array([0.5, 0.5, 0.5], dtype=float32)
    """

    value_range: fk.Range = fk.option(default=(0, 255), convert=value_range)
    brightness_factor: fk.OptionalRange = fk.option(
        default=None, convert=_checked(factor_range(-1, 1))
    )
    contrast_factor: fk.OptionalRange = fk.option(default=None, convert=_checked(contrast_range))
    saturation_factor: fk.OptionalRange = fk.option(default=None, convert=_checked(share_range))
    hue_factor: fk.OptionalRange = fk.option(default=None, convert=_checked(factor_range(0, 1)))
    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)

    def _steps(self) -> tuple[tuple[str, RandomImageLayer], ...]:
        # layers without weights are values: creating them at each call adds no run time
        steps = (
            ("brightness", RandomBrightness, self.brightness_factor),
            ("contrast", RandomContrast, self.contrast_factor),
            ("saturation", RandomSaturation, self.saturation_factor),
            ("hue", RandomHue, self.hue_factor),
        )
        return tuple(
            (name, layer_class(factor, self.value_range, data_format=self.data_format))
            for name, layer_class, factor in steps
            if factor is not None
        )

    def draw(self, key: jax.Array, shape: ImageShape) -> fk.Tree:
        """Draws the transformation of each step, by the step's name."""
        # keys derived by name: omitting a step does not change the draws of the others
        return {name: step.draw(fk.subkey(key, name), shape) for name, step in self._steps()}

    def transform_images(self, images: jax.Array, transformation: fk.Tree) -> jax.Array:
        for name, step in self._steps():
            images = step.transform_images(images, transformation[name])
        return images
