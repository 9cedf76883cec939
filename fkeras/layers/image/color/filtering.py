"""`RandomGaussianBlur` and `RandomSharpness`."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk
from fkeras.layers.image.common.base import ImageShape, RandomImageLayer
from fkeras.layers.image.common.factors import applied, factor_range, uniform
from fkeras.layers.image.common.values import value_range
from fkeras.nn.image.filters import gaussian_blur, sharpen

_two_sizes = fk.sizes(2)


def _odd_sizes(value: fk.Field) -> tuple[int, ...]:
    window_sizes = _two_sizes(value)
    if not all(size % 2 for size in window_sizes):
        raise ValueError(
            f"expected odd numbers, received {value!r}. A window is centered on its pixel: give 3, "
            "or (3, 5)."
        )
    return window_sizes


class RandomGaussianBlur(RandomImageLayer):
    """Blurs some images by a random amount in training; changes nothing in inference.

    Args:
        factor: probability: two numbers from 0 to 1 between which each image draws its
            probability, or one number f for (0, f); (1, 1) to blur all images.
        kernel_size: odd size of the window along the width and along the height, or one number
            for both.
        sigma: standard deviation in pixels: two numbers from 0 to 1 between which each image
            draws one for the width and one for the height, or one number s for (0, s). (Keras
            documents this too, but draws once for the whole batch.)

    Raises:
        ValueError: for factors and sigmas outside of [0, 1] and even sizes; in training without a
            key.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.RandomGaussianBlur((1, 1), 3, (1.0, 1.0))
        >>> x = jnp.zeros((3, 3, 1)).at[1, 1].set(100.0)
        >>> blurred = layer(x, training=True, key=jax.random.key(0))
        >>> round(float(blurred[1, 1, 0]), 1), round(float(blurred[0, 0, 0]), 1)
        (20.4, 7.5)
    """

    factor: fk.Range = fk.option(default=1.0, convert=factor_range(0, 1))
    kernel_size: fk.Pair = fk.option(default=3, convert=_odd_sizes)
    sigma: fk.Range = fk.option(default=1.0, convert=factor_range(0, 1))
    value_range: fk.Range = fk.option(default=(0, 255), convert=value_range)
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)
    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))

    def draw(self, key: jax.Array, shape: ImageShape) -> fk.Tree:
        """Draws {"should_apply_blur": (b,), "blur_factor": (b, 2)}: images and their sigmas."""
        apply_key, sigma_key = jax.random.split(key)
        return {
            "should_apply_blur": applied(apply_key, shape.batch, self.factor),
            # sigma 0 would divide by 0 in the weights of the window
            "blur_factor": uniform(sigma_key, (shape.batch, 2), self.sigma) + 1e-6,
        }

    def transform_images(self, images: jax.Array, transformation: fk.Tree) -> jax.Array:
        selected = jnp.reshape(transformation["should_apply_blur"], (-1, 1, 1, 1))
        sigma = transformation["blur_factor"]
        blurred = gaussian_blur(images, self.kernel_size, sigma, self.data_format)
        return jnp.clip(jnp.where(selected, blurred, images), *self.value_range)


class RandomSharpness(RandomImageLayer):
    """Blurs or sharpens each image at random in training; changes nothing in inference.

    Args:
        factor: 0 for a blurred image, 0.5 for no change, 1 for a sharpened image: two numbers from
            0 to 1 between which each image draws, or one number f for (0, f).

    Raises:
        ValueError: for factors outside of [0, 1]; in training without a key.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.RandomSharpness((1, 1))
        >>> x = jnp.zeros((3, 3, 1)).at[1, 1].set(130.0)
        >>> layer(x, training=True, key=jax.random.key(0))[..., 0].round(1)
        Array([[  0.,   0.,   0.],
               [  0., 210.,   0.],
               [  0.,   0.,   0.]], dtype=float32)
    """

    factor: fk.Range = fk.option(convert=factor_range(0, 1))
    value_range: fk.Range = fk.option(default=(0, 255), convert=value_range)
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)
    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))

    def draw(self, key: jax.Array, shape: ImageShape) -> fk.Tree:
        """Draws {"factor": (b,)}: the sharpness."""
        return {"factor": uniform(key, (shape.batch,), self.factor)}

    def transform_images(self, images: jax.Array, transformation: fk.Tree) -> jax.Array:
        # `sharpen` takes 0 for blurred, 1 for no change and 2 for sharpened images
        sharpness = jnp.reshape(transformation["factor"] * 2, (-1, 1, 1, 1))
        return jnp.clip(sharpen(images, sharpness, self.data_format), *self.value_range)
