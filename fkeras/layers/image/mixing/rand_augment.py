"""`RandAugment`: random operations for each image."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk
from fkeras.layers.image.common.base import ImageLayer, ImageShape, RandomImageLayer
from fkeras.layers.image.common.factors import factor_range
from fkeras.layers.image.common.values import value_range
from fkeras.layers.image.mixing.operations import Operations, draw_all, operations

_NAMES = (
    "random_shear",
    "random_translation",
    "random_rotation",
    "random_brightness",
    "random_color_degeneration",
    "random_contrast",
    "random_sharpness",
    "random_posterization",
    "solarization",
    "auto_contrast",
    "equalization",
)


class RandAugment(RandomImageLayer):
    """Applies random operations to each image in training; changes nothing in inference.

    Each image draws `num_ops` times from shear, translation, rotation, brightness, colour
    degeneration, contrast, sharpness, posterization, solarization, auto contrast and equalization.
    (Keras draws the operations once for a whole batch, contrary to the paper and its own
    documentation, and applies them to boxes in a different order than to images.)

    Args:
        num_ops: number of operations, applied in sequence.
        factor: strength: two numbers from 0 to 1 between which each operation draws, or one number
            f for (0, f).
        interpolation: interpolation of geometric operations: "nearest" or "bilinear".

    Shapes:
        (b, h, w, 3) -> (b, h, w, 3), the same without b; or one channel.

    Raises:
        ValueError: for factors outside of [0, 1]; in training without a key.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.RandAugment(num_ops=1)
        >>> x = jnp.arange(32.0).reshape(2, 4, 4, 1)
        >>> layer.apply(x, training=True, key=jax.random.key(0)).value.shape
        (2, 4, 4, 1)

    References:
        Cubuk et al., 2019, RandAugment: Practical automated data augmentation with a reduced
        search space, https://arxiv.org/abs/1909.13719
    """

    value_range: fk.Range = fk.option(default=(0, 255), convert=value_range)
    num_ops: fk.Integer = fk.option(default=2, convert=fk.integer(minimum=1))
    factor: fk.Range = fk.option(default=0.5, convert=factor_range(0, 1))
    interpolation: str = fk.option(default="bilinear", convert=fk.choice("nearest", "bilinear"))
    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)

    def operations(self) -> Operations:
        """Returns the layers to choose from, by name, in the order of `layer_idxes`."""
        return operations(self, _NAMES)

    def draw(self, key: jax.Array, shape: ImageShape) -> fk.Tree:
        """Draws {"layer_idxes": (num_ops, b), "transforms": the draws of each operation}."""
        operation_key, strength_key = jax.random.split(key)
        return {
            "layer_idxes": jax.random.randint(
                operation_key, (self.num_ops, shape.batch), 0, len(_NAMES)
            ),
            "transforms": draw_all(self.operations(), strength_key, shape),
        }

    def transform_images(self, images: jax.Array, transformation: fk.Tree) -> jax.Array:
        return self._apply(images, transformation, lambda op: op.transform_images)

    def transform_segmentation_masks(
        self, segmentation_masks: jax.Array, transformation: fk.Tree
    ) -> jax.Array:
        return self._apply(
            segmentation_masks, transformation, lambda op: op.transform_segmentation_masks
        )

    def transform_bounding_boxes(
        self, bounding_boxes: dict[str, jax.Array], transformation: fk.Tree, shape: ImageShape
    ) -> dict[str, jax.Array]:
        def hook(operation: ImageLayer) -> Callable:
            return lambda boxes, draws: operation.transform_bounding_boxes(boxes, draws, shape)

        return self._apply(bounding_boxes, transformation, hook)

    def _apply(self, values: fk.Tree, transformation: fk.Tree, hook: Callable) -> Any:
        named_layers, draws = self.operations(), transformation["transforms"]

        # scan compiles one step for all draws; images select different operations, so each step
        # computes every operation
        def step(values: fk.Tree, indices: jax.Array) -> tuple[Any, None]:
            result = values
            for i, (name, operation) in enumerate(named_layers):
                new = hook(operation)(values, draws[name])
                result = jax.tree.map(lambda n, old, i=i: _where(indices == i, n, old), new, result)
            return result, None

        return jax.lax.scan(step, values, transformation["layer_idxes"])[0]


def _where(selected: jax.Array, new: jax.Array, old: jax.Array) -> jax.Array:
    selected = jnp.reshape(selected, (-1,) + (1,) * (old.ndim - 1))
    # scan requires the dtype of its carry to stay the same
    return jnp.where(selected, new.astype(old.dtype), old)
