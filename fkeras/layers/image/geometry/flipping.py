"""`RandomFlip`: random reflections of images."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk
from fkeras.layers.image.common.base import ImageShape, RandomImageLayer
from fkeras.layers.image.common.boxes import move_boxes
from fkeras.nn.image.layout import image_axes


class RandomFlip(RandomImageLayer):
    """Flips each image with probability 1/2 in training; changes nothing in inference.

    The mode "horizontal_and_vertical" draws both directions independently, with four possible
    results. (Keras draws once, and either rotates an image by 180 degrees or leaves it unchanged.)

    Args:
        mode: "horizontal" (exchanges left and right), "vertical" (exchanges top and bottom), or
            "horizontal_and_vertical".

    Raises:
        ValueError: for an unknown mode; in training without a key.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.RandomFlip("horizontal")
        >>> x = jnp.array([[[1.0], [2.0]]])
        >>> {tuple(layer(x, training=True, key=jax.random.key(i)).ravel().tolist())
        ...  for i in range(9)} == {(1.0, 2.0), (2.0, 1.0)}
        True
    """

    mode: str = fk.option(
        default="horizontal_and_vertical",
        convert=fk.choice("horizontal", "vertical", "horizontal_and_vertical"),
    )
    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)

    def draw(self, key: jax.Array, shape: ImageShape) -> fk.Tree:
        """Draws {"vertical": (b,), "horizontal": (b,)}: the images to flip in each direction."""
        vertical_key, horizontal_key = jax.random.split(key)
        no_flips = jnp.zeros((shape.batch,), bool)

        def flips(key: jax.Array, direction: str) -> jax.Array:
            return (
                jax.random.bernoulli(key, 0.5, (shape.batch,)) if enabled(direction) else no_flips
            )

        def enabled(direction: str) -> bool:
            return direction in self.mode

        return {
            "vertical": flips(vertical_key, "vertical"),
            "horizontal": flips(horizontal_key, "horizontal"),
        }

    def moved(self, images: jax.Array, transformation: fk.Tree, interpolation: str) -> jax.Array:
        rows, columns, _ = image_axes(images.ndim, self.data_format)
        for direction, axis in (("vertical", rows), ("horizontal", columns)):
            # `where` computes both versions: the program has no branches for single images
            flips = jnp.reshape(transformation[direction], (-1, 1, 1, 1))
            images = jnp.where(flips, jnp.flip(images, axis), images)
        return images

    def transform_bounding_boxes(
        self, bounding_boxes: dict[str, jax.Array], transformation: fk.Tree, shape: ImageShape
    ) -> dict[str, jax.Array]:
        vertical, horizontal = (
            transformation[d][:, None, None] for d in ("vertical", "horizontal")
        )

        def move(boxes: jax.Array) -> jax.Array:
            x1, y1, x2, y2 = (boxes[..., i : i + 1] for i in range(4))
            mirrored = jnp.concatenate((shape.width - x2, y1, shape.width - x1, y2), axis=-1)
            boxes = jnp.where(horizontal, mirrored, boxes)
            x1, y1, x2, y2 = (boxes[..., i : i + 1] for i in range(4))
            mirrored = jnp.concatenate((x1, shape.height - y2, x2, shape.height - y1), axis=-1)
            return jnp.where(vertical, mirrored, boxes)

        return move_boxes(self, bounding_boxes, shape, move)
