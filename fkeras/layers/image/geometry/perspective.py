"""`RandomPerspective`: random perspective transforms."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk
from fkeras.layers.image.common.base import ImageShape
from fkeras.layers.image.common.factors import applied, factor_range, uniform
from fkeras.layers.image.geometry.affine import MatrixLayer
from fkeras.nn.warping.geometry import homography, matrix_of
from fkeras.nn.warping.sampling import INTERPOLATIONS


class RandomPerspective(MatrixLayer):
    """Applies random perspective transforms to some images in training.

    Each coordinate of a corner changes by a fraction of itself, so the first corner does not move.
    Boxes keep their format (Keras returns "xyxy"). The layer changes nothing in inference.

    Args:
        factor: probability of changing an image: (lower, upper), between which each image draws
            its probability, or one number f, which means (0, f).
        scale: twice the largest fraction by which a coordinate changes, from 0 to 1.
        fill_value: value of pixels outside of the old image.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> x = jnp.ones((2, 8, 8, 1))
        >>> y = fk.layers.RandomPerspective()(x, training=True, key=jax.random.key(0))
        >>> y.shape, bool((y == x).all())
        ((2, 8, 8, 1), False)
    """

    factor: fk.Range = fk.option(default=1.0, convert=factor_range(0, 1))
    scale: fk.Real = fk.option(default=1.0, convert=fk.probability)
    interpolation: str = fk.option(default="bilinear", convert=fk.choice(*INTERPOLATIONS))
    fill_value: fk.Real = fk.option(default=0.0, convert=fk.real())
    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)

    def draw(self, key: jax.Array, shape: ImageShape) -> fk.Tree:
        """Draws {"apply_perspective": (b,), "start_points", "end_points": both (b, 4, 2)}."""
        apply_key, offset_key = jax.random.split(key)
        # the corners of an image with a width of one pixel would be collinear
        right, bottom = max(shape.width - 1, 1), max(shape.height - 1, 1)
        corners = jnp.array([[0, 0], [right, 0], [0, bottom], [right, bottom]], "float32")
        corners = jnp.broadcast_to(corners[None], (shape.batch, 4, 2))
        half = 0.5 * self.scale
        fractions = uniform(offset_key, (shape.batch, 4, 2), (-half, half))
        return {
            "apply_perspective": applied(apply_key, shape.batch, self.factor),
            "start_points": corners,
            "end_points": corners + corners * fractions,
        }

    def matrix(self, transformation: fk.Tree, shape: ImageShape) -> jax.Array:
        coefficients = homography(transformation["start_points"], transformation["end_points"])
        selected = transformation["apply_perspective"][:, None, None]
        # the identity matrix leaves the other images unchanged without a branch
        return jnp.where(selected, matrix_of(coefficients), jnp.eye(3)[None])
