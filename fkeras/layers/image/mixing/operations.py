"""Operations of `RandAugment` and `AugMix`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from fkeras.engine import subkey
from fkeras.layers.image.color.colors import RandomColorDegeneration
from fkeras.layers.image.color.filtering import RandomSharpness
from fkeras.layers.image.color.histograms import AutoContrast, Equalization
from fkeras.layers.image.color.inversion import RandomPosterization, Solarization
from fkeras.layers.image.color.tones import RandomBrightness, RandomContrast
from fkeras.layers.image.common.base import ImageLayer, ImageShape, RandomImageLayer
from fkeras.layers.image.geometry.affine import RandomRotation, RandomShear, RandomTranslation

Operations = tuple[tuple[str, ImageLayer], ...]


def operations(layer: Any, names: Sequence[str]) -> Operations:
    """Returns the layers with these names, with the strength `factor` of `layer`."""
    factor, scale = layer.factor, layer.value_range
    shared = {
        "data_format": layer.data_format,
        "bounding_box_format": layer.bounding_box_format,
        "dtype": layer.policy,
    }
    moved = {"interpolation": layer.interpolation, **shared}
    coloured = {"value_range": scale, **shared}
    # all are created, and selected by name below: construction is cheap and needs no branches
    made = {
        "random_shear": RandomShear(factor, factor, **moved),
        "random_translation": RandomTranslation(factor, factor, **moved),
        "random_rotation": RandomRotation(factor, **moved),
        "random_brightness": RandomBrightness(factor, **coloured),
        "random_color_degeneration": RandomColorDegeneration(factor, **coloured),
        "random_contrast": RandomContrast(factor, **coloured),
        "random_sharpness": RandomSharpness(factor, **coloured),
        "random_posterization": RandomPosterization(max(1, int(8 * factor[1])), **coloured),
        "solarization": Solarization(factor, factor, **coloured),
        "auto_contrast": AutoContrast(**coloured),
        "equalization": Equalization(**coloured),
    }
    return tuple((name, made[name]) for name in names)


def draw_all(chosen: Operations, key: jax.Array, shape: ImageShape) -> dict[str, Any]:
    """Draws the transformation of each operation, by name; None if it draws nothing."""
    return {
        name: layer.draw(subkey(key, name), shape) if isinstance(layer, RandomImageLayer) else None
        for name, layer in chosen
    }
