"""Operations of `RandAugment` and `AugMix`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from fkeras.layers.common import authoring as fk
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
    geometry_options = {"interpolation": layer.interpolation, **shared}
    color_options = {"value_range": scale, **shared}
    # all are created, and selected by name below: construction is cheap and needs no branches
    layers_by_name = {
        "random_shear": RandomShear(factor, factor, **geometry_options),
        "random_translation": RandomTranslation(factor, factor, **geometry_options),
        "random_rotation": RandomRotation(factor, **geometry_options),
        "random_brightness": RandomBrightness(factor, **color_options),
        "random_color_degeneration": RandomColorDegeneration(factor, **color_options),
        "random_contrast": RandomContrast(factor, **color_options),
        "random_sharpness": RandomSharpness(factor, **color_options),
        "random_posterization": RandomPosterization(max(1, int(8 * factor[1])), **color_options),
        "solarization": Solarization(factor, factor, **color_options),
        "auto_contrast": AutoContrast(**color_options),
        "equalization": Equalization(**color_options),
    }
    return tuple((name, layers_by_name[name]) for name in names)


def draw_all(chosen: Operations, key: jax.Array, shape: ImageShape) -> dict[str, Any]:
    """Draws the transformation of each operation, by name; None if it draws nothing."""
    return {
        name: layer.draw(fk.subkey(key, name), shape)
        if isinstance(layer, RandomImageLayer)
        else None
        for name, layer in chosen
    }
