"""`RandomPerspective`: random perspective transforms."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fkeras.engine import option
from fkeras.engine.config.converters import choice, data_format_name, integer, probability, real
from fkeras.engine.config.field_types import DataFormat, OptionalInteger, Range, Real
from fkeras.layers.image.common.base import ImageShape
from fkeras.layers.image.common.factors import applied, factor_range, uniform
from fkeras.layers.image.geometry.affine import MatrixLayer
from fkeras.nn.warping.geometry import homography, matrix_of
from fkeras.nn.warping.sampling import INTERPOLATIONS


class RandomPerspective(MatrixLayer):
    """Moves the corners of some images in training, and all else as straight lines demand.

    A corner's coordinates change by a share of themselves, so the first corner stays. Boxes come
    back in the format that they had (Keras gives "xyxy").

    Args:
        factor: the chance of an image to be changed: (lower, upper), from which each image draws
            its own, or one number f, which means (0, f).
        scale: twice the largest share by which a coordinate changes, from 0 to 1.
        fill_value: what stands where the old image has nothing to show.
        Other arguments: those of `RandomTranslation`.

    Shapes:
        (b, h, w, c) -> (b, h, w, c), the same without b.

    Raises:
        ValueError: for factors out of their range and unknown words; in training without a key.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> x = jnp.ones((2, 8, 8, 1))
        >>> y = fk.layers.RandomPerspective()(x, training=True, key=jax.random.key(0))
        >>> y.shape, bool((y == x).all())
        ((2, 8, 8, 1), False)
    """

    factor: Range = option(default=1.0, convert=factor_range(0, 1))
    scale: Real = option(default=1.0, convert=probability)
    interpolation: str = option(default="bilinear", convert=choice(*INTERPOLATIONS))
    fill_value: Real = option(default=0.0, convert=real())
    seed: OptionalInteger = option(default=None, convert=integer(optional=True))
    data_format: DataFormat = option(default=None, convert=data_format_name)

    def draw(self, key: jax.Array, shape: ImageShape) -> Any:
        """{"apply_perspective": (b,), "start_points": (b, 4, 2), "end_points": (b, 4, 2)}."""
        chance, moves = jax.random.split(key)
        # the corners of an image one pixel wide would lie on one line
        right, bottom = max(shape.width - 1, 1), max(shape.height - 1, 1)
        corners = jnp.array([[0, 0], [right, 0], [0, bottom], [right, bottom]], "float32")
        corners = jnp.broadcast_to(corners[None], (shape.batch, 4, 2))
        half = 0.5 * self.scale
        shares = uniform(moves, (shape.batch, 4, 2), (-half, half))
        return {
            "apply_perspective": applied(chance, shape.batch, self.factor),
            "start_points": corners,
            "end_points": corners + corners * shares,
        }

    def matrix(self, transformation: Any, shape: ImageShape) -> jax.Array:
        seen = homography(transformation["start_points"], transformation["end_points"])
        chosen = transformation["apply_perspective"][:, None, None]
        return jnp.where(chosen, matrix_of(seen), jnp.eye(3)[None])
