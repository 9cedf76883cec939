"""Random color changes: hue, saturation, color degeneration, grayscale."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk
from fkeras.layers.image.common.base import ImageShape, RandomImageLayer
from fkeras.layers.image.common.factors import factor_range, uniform
from fkeras.layers.image.common.values import share_range, value_range
from fkeras.nn.image.adjustments import adjust_hue, adjust_saturation, degenerate_colors
from fkeras.nn.image.colors import rgb_to_grayscale
from fkeras.nn.numerics.stable import EPSILON


class RandomHue(RandomImageLayer):
    """Rotates the hue of each image by a random angle in training; changes nothing in inference.

    Args:
        factor: angle in half turns, in a random direction: two numbers from 0 to 1 between which
            each image draws, or one number f for (0, f).

    Shapes:
        (b, h, w, 3) -> (b, h, w, 3), the same without b.

    Raises:
        ValueError: for factors outside of [0, 1] and images without 3 channels; in training
            without a key.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.RandomHue((1.0, 1.0), (0, 1))
        >>> layer(jnp.array([[[1, 0, 0]]]), training=True, key=jax.random.key(0)).ravel()
        Array([0., 1., 1.], dtype=float32)
    """

    factor: fk.Range = fk.option(convert=factor_range(0, 1))
    value_range: fk.Range = fk.option(default=(0, 255), convert=value_range)
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)
    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))

    def draw(self, key: jax.Array, shape: ImageShape) -> fk.Tree:
        """Draws {"factor": (b,)}: the rotation in turns."""
        direction, size = jax.random.split(key)
        signs = jax.random.rademacher(direction, (shape.batch,), "float32")
        return {"factor": signs * uniform(size, (shape.batch,), self.factor) * 0.5}

    def transform_images(self, images: jax.Array, transformation: fk.Tree) -> jax.Array:
        factor = jnp.reshape(transformation["factor"], (-1, 1, 1, 1))
        return adjust_hue(images, factor, self.value_range, self.data_format)


class RandomSaturation(RandomImageLayer):
    """Changes the saturation of each image at random in training; changes nothing in inference.

    The layer multiplies saturations by `f / (1 - f)`, where f is the drawn factor, and clips them
    at 1. (Keras clips at the highest pixel value instead, which for (0, 255) produces invalid
    colours.)

    Args:
        factor: 0 for grayscale images, 0.5 for no change, 1 for pure colours: two numbers between
            which each image draws, or one number f for (0, f). Draws below 0 give grayscale
            images. (Keras documents (0, f) as well, but implements (-f, f).)

    Shapes:
        (b, h, w, 3) -> (b, h, w, 3), the same without b.

    Raises:
        ValueError: for a factor outside of [0, 1] and images without 3 channels; in training
            without a key.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.RandomSaturation((0.0, 0.0))
        >>> layer(jnp.array([[[200, 100, 0]]]), training=True, key=jax.random.key(0)).ravel()
        Array([200., 200., 200.], dtype=float32)
    """

    factor: fk.Range = fk.option(convert=share_range)
    value_range: fk.Range = fk.option(default=(0, 255), convert=value_range)
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)
    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))

    def draw(self, key: jax.Array, shape: ImageShape) -> fk.Tree:
        """Draws {"factor": (b,)}: the factor of the saturation."""
        factor = uniform(key, (shape.batch,), self.factor)
        # epsilon keeps the result finite for a draw of 1; clipping then gives pure colours
        return {"factor": factor / (1 - factor + EPSILON)}

    def transform_images(self, images: jax.Array, transformation: fk.Tree) -> jax.Array:
        amount = jnp.reshape(transformation["factor"], (-1, 1, 1, 1))
        return adjust_saturation(images, amount, self.value_range, self.data_format)


class RandomColorDegeneration(RandomImageLayer):
    """Mixes each image with its grayscale version in training; changes nothing in inference.

    Args:
        factor: 0 for no change, 1 for grayscale: two numbers between which each image draws, or
            one number f for (0, f). Draws below 0 make colours stronger. (Keras documents (0, f)
            as well, but implements (-f, f).)

    Shapes:
        (b, h, w, 3) -> (b, h, w, 3), the same without b; images with one channel are unchanged.

    Raises:
        ValueError: for a factor outside of [0, 1] and images without 3 or 1 channels; in
            training without a key.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.RandomColorDegeneration((0.5, 0.5))
        >>> layer(jnp.array([[[0, 100, 0]]]), training=True, key=jax.random.key(0)).ravel()
        Array([29.35, 79.35, 29.35], dtype=float32)
    """

    factor: fk.Range = fk.option(convert=share_range)
    value_range: fk.Range = fk.option(default=(0, 255), convert=value_range)
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)
    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))

    def draw(self, key: jax.Array, shape: ImageShape) -> fk.Tree:
        """Draws {"factor": (b, 1, 1, 1)}: the weight of the grayscale image."""
        return {"factor": uniform(key, (shape.batch, 1, 1, 1), self.factor)}

    def transform_images(self, images: jax.Array, transformation: fk.Tree) -> jax.Array:
        factor = transformation["factor"]
        return degenerate_colors(images, factor, self.value_range, self.data_format)


class RandomGrayscale(RandomImageLayer):
    """Converts some images to grayscale in training, with three equal channels.

    The layer changes nothing in inference.

    Args:
        factor: probability for each image, from 0 to 1.

    Shapes:
        (b, h, w, 3) -> (b, h, w, 3), the same without b; images with one channel are unchanged.

    Raises:
        ValueError: for a factor outside of [0, 1] and images without 3 or 1 channels; in
            training without a key.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.RandomGrayscale(1.0)
        >>> layer(jnp.array([[[0, 100, 0]]]), training=True, key=jax.random.key(0)).ravel()
        Array([58.7, 58.7, 58.7], dtype=float32)
    """

    factor: fk.Real = fk.option(default=0.5, convert=fk.probability)
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)
    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))

    def draw(self, key: jax.Array, shape: ImageShape) -> fk.Tree:
        """Draws which images become grayscale: (b, 1, 1, 1)."""
        return uniform(key, (shape.batch, 1, 1, 1), (0.0, 1.0)) < self.factor

    def transform_images(self, images: jax.Array, transformation: fk.Tree) -> jax.Array:
        # the grayscale image has one channel; `where` broadcasts it to the channels of the image
        return jnp.where(transformation, rgb_to_grayscale(images, self.data_format), images)
