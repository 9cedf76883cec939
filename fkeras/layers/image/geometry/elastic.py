"""`RandomElasticTransform`: random elastic distortion."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk
from fkeras.layers.image.common.base import ImageShape, RandomImageLayer
from fkeras.layers.image.common.boxes import move_boxes
from fkeras.layers.image.common.factors import applied, factor_range, uniform
from fkeras.layers.image.common.values import value_range
from fkeras.nn.image.layout import as_batch
from fkeras.nn.warping.elastic import displace, smooth_fields
from fkeras.nn.warping.geometry import grid
from fkeras.nn.warping.sampling import FILL_MODES, INTERPOLATIONS


def boxes_of_displaced(boxes: jax.Array, dy: jax.Array, dx: jax.Array) -> jax.Array:
    """Returns the boxes that enclose all pixels that sample a point inside of the old boxes.

    Args:
        boxes: array of shape (b, n, 4), in "xyxy".
        dy: row offset of the point that each pixel samples, (b, h, w).
        dx: column offset of the point that each pixel samples, (b, h, w).

    Returns:
        An array of shape (b, n, 4) of whole pixels; zeros if no pixel samples a point of the box.

    Example:
        >>> import jax.numpy as jnp
        >>> shift = jnp.ones((1, 4, 4))
        >>> boxes_of_displaced(jnp.array([[[1.0, 2.0, 3.0, 4.0]]]), 0 * shift, shift)
        Array([[[0., 2., 2., 4.]]], dtype=float32)
    """
    height, width = dy.shape[1:]
    y, x = grid(height, width)
    # pixel centers lie at half-integers in the coordinates of boxes
    samples = [(p + d + 0.5)[:, None] for p, d in ((x, dx), (y, dy))]
    low = [boxes[:, :, i][..., None, None] for i in (0, 1)]
    high = [boxes[:, :, i][..., None, None] for i in (2, 3)]
    (u, v), (left, top), (right, bottom) = samples, low, high
    inside = (u >= left) & (u <= right) & (v >= top) & (v <= bottom)
    edges = []
    for pixels, size in ((x[:, None], width), (y[:, None], height)):
        first = jnp.min(jnp.where(inside, pixels, float(size)), axis=(-2, -1))
        last = jnp.max(jnp.where(inside, pixels + 1, 0.0), axis=(-2, -1))
        # an empty box has first = size and last = 0: the minimum makes its area 0
        edges.append((jnp.minimum(first, last), last))
    (x1, x2), (y1, y2) = edges
    return jnp.stack((x1, y1, x2, y2), axis=-1)


class RandomElasticTransform(RandomImageLayer):
    """Distorts some images by smooth random fields in training; changes nothing in inference.

    Rows and columns move by independent fields, and masks move like their images (Keras draws one
    field for both directions, and another field for masks). Boxes, which Keras rejects, become
    those that enclose all pixels that sample a point inside of them. In training, images are
    clipped to `value_range`, masks are not.

    Args:
        factor: probability of changing an image: (lower, upper), between which each image draws
            its probability, or one number f, which means (0, f).
        scale: (lower, upper) of the strength, drawn once for the batch, or one number f, which
            means (0, f); both from 0 to 1.
        fill_mode: "mirror" (c b | a b c | b a), or a fill mode of `RandomTranslation`.
        value_range: (lowest, highest) value of a pixel.

    Raises:
        ValueError: for factors out of range and unknown strings; in training without a key.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> x = jnp.arange(256.0).reshape(1, 16, 16, 1)
        >>> layer = fk.layers.RandomElasticTransform((1, 1), (1, 1))
        >>> bool((layer(x, training=True, key=jax.random.key(0)) == x).all())
        False

    References:
        Simard et al., 2003, Best practices for convolutional neural networks,
        https://doi.org/10.1109/ICDAR.2003.1227801
    """

    factor: fk.Range = fk.option(default=1.0, convert=factor_range(0, 1))
    scale: fk.Range = fk.option(default=1.0, convert=factor_range(0, 1))
    interpolation: str = fk.option(default="bilinear", convert=fk.choice(*INTERPOLATIONS))
    fill_mode: str = fk.option(default="reflect", convert=fk.choice(*FILL_MODES))
    fill_value: fk.Real = fk.option(default=0.0, convert=fk.real())
    value_range: fk.Range = fk.option(default=(0, 255), convert=value_range)
    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)

    def draw(self, key: jax.Array, shape: ImageShape) -> fk.Tree:
        """Draws {"apply_transform": (b,), "dy": (b, h, w), "dx": (b, h, w)}; None for scale 0."""
        if self.scale[1] == 0 or self.factor[1] == 0:
            return None
        chance, strength, noise = jax.random.split(key, 3)
        scale = uniform(strength, (), self.scale)
        short, long = min(shape.height, shape.width), max(shape.height, shape.width)
        # `largest` is static: it fixes the size of the filter, whereas `scale` is traced
        fields = smooth_fields(
            noise,
            (shape.batch, shape.height, shape.width),
            0.05 * short * scale,
            largest=0.05 * short * self.scale[1],
        )
        dy, dx = (0.1 * long * scale * field for field in fields)
        selected = applied(chance, shape.batch, self.factor)
        return {"apply_transform": selected, "dy": dy, "dx": dx}

    def transform_images(self, images: jax.Array, transformation: fk.Tree) -> jax.Array:
        images = super().transform_images(images, transformation)
        return images if transformation is None else jnp.clip(images, *self.value_range)

    def moved(self, images: jax.Array, transformation: fk.Tree, interpolation: str) -> jax.Array:
        if transformation is None:
            return images
        batch, unbatch = as_batch(images, self.data_format)
        dy, dx = transformation["dy"], transformation["dx"]
        displaced = displace(batch, dy, dx, interpolation, self.fill_mode, self.fill_value)
        return unbatch(
            jnp.where(transformation["apply_transform"][:, None, None, None], displaced, batch)
        )

    def transform_bounding_boxes(
        self, bounding_boxes: dict[str, jax.Array], transformation: fk.Tree, shape: ImageShape
    ) -> dict[str, jax.Array]:
        if transformation is None:
            return bounding_boxes

        def move(boxes: jax.Array) -> jax.Array:
            moved = boxes_of_displaced(boxes, transformation["dy"], transformation["dx"])
            return jnp.where(transformation["apply_transform"][:, None, None], moved, boxes)

        return move_boxes(self, bounding_boxes, shape, move)
