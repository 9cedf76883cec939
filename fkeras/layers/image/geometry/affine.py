"""Layers that transform images by random affine matrices.

`RandomTranslation`, `RandomRotation`, `RandomZoom` and `RandomShear` differ in their draws and in
the matrix that they compute from a draw; images, masks and boxes all use the same matrix.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk
from fkeras.layers.image.common.base import ImageShape, RandomImageLayer
from fkeras.layers.image.common.boxes import move_boxes
from fkeras.layers.image.common.factors import factor_range, uniform
from fkeras.nn.image.boxes import follow
from fkeras.nn.image.layout import as_batch
from fkeras.nn.warping.geometry import warp_by_matrix
from fkeras.nn.warping.matrices import (
    rotation_matrix,
    shear_matrix,
    translation_matrix,
    zoom_matrix,
)
from fkeras.nn.warping.sampling import INTERPOLATIONS

FILL_MODES = ("reflect", "wrap", "constant", "nearest")
_fill_mode = fk.choice(*FILL_MODES)
_interpolation = fk.choice(*INTERPOLATIONS)


# MatrixLayer must not declare fields: each class has Keras's own order of arguments
class WarpingFields:
    """Types of the fields that every matrix layer declares, each in its own order."""

    interpolation: str
    fill_value: float


class MatrixLayer(RandomImageLayer, WarpingFields):
    """Base class of layers that transform images, masks and boxes by the matrices of `matrix`.

    The concrete classes declare the fields `fill_mode`, `interpolation`, `fill_value`, `seed` and
    `data_format`.

    Raises of the family:
        ValueError: for factors out of range and unknown strings; in training without a key.
    """

    def matrix(self, transformation: fk.Tree, shape: ImageShape) -> jax.Array:
        """Returns the matrices (b, 3, 3) that map points of the new images to the old images."""
        raise NotImplementedError(f"{self._where}: has no `matrix`. Write one of shape (b, 3, 3).")

    def moved(self, images: jax.Array, transformation: fk.Tree, interpolation: str) -> jax.Array:
        matrix = self.matrix(transformation, self.image_shape(images))
        batch, unbatch = as_batch(images, self.data_format)
        # RandomPerspective has no fill_mode, as in Keras
        fill_mode = getattr(self, "fill_mode", "constant")
        return unbatch(warp_by_matrix(batch, matrix, interpolation, fill_mode, self.fill_value))

    def transform_bounding_boxes(
        self, bounding_boxes: dict[str, jax.Array], transformation: fk.Tree, shape: ImageShape
    ) -> dict[str, jax.Array]:
        matrix = self.matrix(transformation, shape)
        return move_boxes(self, bounding_boxes, shape, lambda boxes: follow(boxes, matrix))


class RandomTranslation(MatrixLayer):
    """Shifts each image vertically and horizontally in training; changes nothing in inference.

    Args:
        height_factor: (lower, upper): downward shift as a fraction of the height, each from -1 to
            1; one number f means (-f, f).
        width_factor: (lower, upper): shift to the right as a fraction of the width.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.RandomTranslation(0, (0.5, 0.5), fill_mode="constant")
        >>> layer(jnp.array([[[1.0], [2.0]]]), training=True, key=jax.random.key(0)).ravel()
        Array([0., 1.], dtype=float32)
    """

    height_factor: fk.Range = fk.option(convert=factor_range(-1, 1))
    width_factor: fk.Range = fk.option(convert=factor_range(-1, 1))
    fill_mode: str = fk.option(default="reflect", convert=_fill_mode)
    interpolation: str = fk.option(default="bilinear", convert=_interpolation)
    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))
    fill_value: fk.Real = fk.option(default=0.0, convert=fk.real())
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)

    def draw(self, key: jax.Array, shape: ImageShape) -> fk.Tree:
        """Draws {"translations": (b, 2)}: pixels to the right and down."""
        down, right = jax.random.split(key)
        dx = uniform(right, (shape.batch,), self.width_factor) * shape.width
        dy = uniform(down, (shape.batch,), self.height_factor) * shape.height
        return {"translations": jnp.stack((dx, dy), axis=-1)}

    def matrix(self, transformation: fk.Tree, shape: ImageShape) -> jax.Array:
        translations = transformation["translations"]
        return translation_matrix(translations[:, 0], translations[:, 1])


class RandomRotation(MatrixLayer):
    """Rotates each image about its center in training; changes nothing in inference.

    Boxes become the axis-aligned boxes that enclose the rotated boxes, in any format (Keras always
    reads "xyxy").

    Args:
        factor: (lower, upper), counterclockwise in fractions of a full turn, each from -1 to 1; one
            number f means (-f, f).

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> x = jnp.array([[1.0, 2.0], [3.0, 4.0]])[..., None]
        >>> quarter = fk.layers.RandomRotation((0.25, 0.25), interpolation="nearest")
        >>> quarter(x, training=True, key=jax.random.key(0))[..., 0]
        Array([[2., 4.],
               [1., 3.]], dtype=float32)
    """

    factor: fk.Range = fk.option(convert=factor_range(-1, 1))
    fill_mode: str = fk.option(default="reflect", convert=_fill_mode)
    interpolation: str = fk.option(default="bilinear", convert=_interpolation)
    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))
    fill_value: fk.Real = fk.option(default=0.0, convert=fk.real())
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)

    def draw(self, key: jax.Array, shape: ImageShape) -> fk.Tree:
        """Draws {"angle": (b,)} in degrees."""
        lower, upper = self.factor
        return {"angle": uniform(key, (shape.batch,), (360.0 * lower, 360.0 * upper))}

    def matrix(self, transformation: fk.Tree, shape: ImageShape) -> jax.Array:
        return rotation_matrix(transformation["angle"], shape.height, shape.width)


class RandomZoom(MatrixLayer):
    """Zooms each image about its center in training; changes nothing in inference.

    Args:
        height_factor: (lower, upper), each above -1 and up to 1: relative change of the visible
            height, so that numbers above 0 shrink the image; one number f means (-f, f).
        width_factor: the same for the width; None to use the draw of the height.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.RandomZoom((1.0, 1.0), fill_mode="constant")
        >>> layer(jnp.ones((4, 4, 1)), training=True, key=jax.random.key(0))[1, :, 0]
        Array([0., 1., 1., 0.], dtype=float32)
    """

    height_factor: fk.Range = fk.option(convert=factor_range(-1, 1, above=True))
    width_factor: fk.OptionalRange = fk.option(
        default=None, convert=factor_range(-1, 1, above=True, optional=True)
    )
    fill_mode: str = fk.option(default="reflect", convert=_fill_mode)
    interpolation: str = fk.option(default="bilinear", convert=_interpolation)
    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))
    fill_value: fk.Real = fk.option(default=0.0, convert=fk.real())
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)

    def draw(self, key: jax.Array, shape: ImageShape) -> fk.Tree:
        """Draws {"height_zoom": (b, 1), "width_zoom": (b, 1)}: the visible fractions."""
        height_key, width_key = jax.random.split(key)
        height = 1.0 + uniform(height_key, (shape.batch, 1), self.height_factor)
        # one draw for both axes preserves the aspect ratio
        if self.width_factor is None:
            return {"height_zoom": height, "width_zoom": height}
        width = 1.0 + uniform(width_key, (shape.batch, 1), self.width_factor)
        return {"height_zoom": height, "width_zoom": width}

    def matrix(self, transformation: fk.Tree, shape: ImageShape) -> jax.Array:
        height_zoom, width_zoom = (
            transformation[name][:, 0] for name in ("height_zoom", "width_zoom")
        )
        return zoom_matrix(height_zoom, width_zoom, shape.height, shape.width)


_shear_range = factor_range(0, 1)


def _shear(value: fk.Field) -> float | tuple[float, float]:
    # Keras writes one number as (-f, f), which its own constructor rejects
    if isinstance(value, tuple | list) and len(value) == 2:
        numbers = [v for v in value if isinstance(v, int | float)]
        value = value[1] if len(numbers) == 2 and value[0] == -value[1] else value
    lower, upper = _shear_range(value)
    return (lower, upper) if isinstance(value, tuple | list) else upper


class RandomShear(MatrixLayer):
    """Shears each image in a random direction in training; changes nothing in inference.

    Boxes become those that enclose the sheared boxes. (Keras shears boxes in fractions of the
    image, which is a different angle if height and width differ, and one direction after the
    other.)

    Args:
        x_factor: horizontal shift of a row for each row below the first: (lower, upper), both
            from 0 to 1, or one number f, which means (-f, f).
        y_factor: vertical shift of a column for each column after the first, in the same form.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.RandomShear((1.0, 1.0), fill_mode="constant")
        >>> x = jnp.array([[1.0, 2.0], [3.0, 4.0]])[..., None]
        >>> rows = layer(x, training=True, key=jax.random.key(0))[1, :, 0]
        >>> rows.tolist() in ([4.0, 0.0], [0.0, 3.0])
        True
    """

    x_factor: fk.Range = fk.option(default=0.0, convert=_shear)
    y_factor: fk.Range = fk.option(default=0.0, convert=_shear)
    interpolation: str = fk.option(default="bilinear", convert=_interpolation)
    fill_mode: str = fk.option(default="reflect", convert=_fill_mode)
    fill_value: fk.Real = fk.option(default=0.0, convert=fk.real())
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)
    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))

    def draw(self, key: jax.Array, shape: ImageShape) -> fk.Tree:
        """Draws {"shear_factor": (b, 2)}: pixels to the left per row, and up per column."""
        side, *keys = jax.random.split(key, 3)
        # one sign for both directions
        sign = jax.random.rademacher(side, (shape.batch,), "float32")
        shears = [
            sign * uniform(k, (shape.batch,), f if isinstance(f, tuple) else (-f, f))
            for k, f in zip(keys, (self.x_factor, self.y_factor), strict=True)
        ]
        return {"shear_factor": jnp.stack(shears, axis=-1)}

    def matrix(self, transformation: fk.Tree, shape: ImageShape) -> jax.Array:
        shears = transformation["shear_factor"]
        return shear_matrix(shears[:, 0], shears[:, 1])
