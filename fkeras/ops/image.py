"""Image operations with the names of `keras.ops.image`; `fkeras.nn.image` implements them."""

from __future__ import annotations

from collections.abc import Callable

import jax

from fkeras.engine.symbolic.operation import Op, Parameters
from fkeras.engine.values.argument_types import Numbers
from fkeras.nn.image import borders, colors, filters, patches, quality, resizing
from fkeras.nn.warping import elastic, geometry, sampling
from fkeras.random import Seed, key_of

__all__ = (
    "affine_transform",
    "crop_images",
    "elastic_transform",
    "extract_patches",
    "extract_patches_3d",
    "gaussian_blur",
    "hsv_to_rgb",
    "map_coordinates",
    "pad_images",
    "perspective_transform",
    "resize",
    "rgb_to_grayscale",
    "rgb_to_hsv",
    "scale_and_translate",
    "sobel_edges",
    "ssim",
)


def _op(function: Callable[Parameters, jax.Array]) -> Op[Parameters]:
    # files and pickles hold this name, relative to `fkeras.ops`
    return Op(f"image.{function.__name__}", function)


@_op
def elastic_transform(
    images: Numbers,
    alpha: float = 20.0,
    sigma: float = 5.0,
    interpolation: str = "bilinear",
    fill_mode: str = "reflect",
    fill_value: float = 0.0,
    seed: Seed = None,
    data_format: str | None = None,
) -> jax.Array:
    """Moves each pixel by `alpha` times a smooth random field.

    Args:
        images: (b, h, w, c) or (h, w, c); with "channels_first", c comes before h.
        alpha: scale of the displacements, in pixels.
        sigma: standard deviation of the Gaussian that smooths the field, in pixels.
        interpolation: "nearest" or "bilinear".
        fill_mode: values outside of the image, such as "reflect", "constant" or "nearest".
        fill_value: value outside of the image for the fill mode "constant".
        seed: a key, or an integer; see `fk.random`.

    Returns:
        An array like `images`.

    Raises:
        TypeError: if `seed` is missing.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> x = jnp.full((4, 4, 1), 7.0).at[:2].set(1.0)
        >>> y = fk.ops.image.elastic_transform(x, interpolation="nearest", seed=jax.random.key(0))
        >>> y.shape, float(y.min()), float(y.max())
        ((4, 4, 1), 1.0, 7.0)

    References:
        Simard et al., Best practices for convolutional neural networks (2003),
        https://ieeexplore.ieee.org/document/1227801
    """
    # the function in `fkeras.nn` takes a key; the operation accepts Keras's `seed`
    return elastic.elastic_transform(
        images,
        alpha,
        sigma,
        interpolation,
        fill_mode,
        fill_value,
        # Keras draws from a global generator without a seed; here a missing seed is an error
        key_of("ops.image.elastic_transform", seed),
        data_format,
    )


# docstrings are those of the functions in `fkeras.nn`
affine_transform = _op(geometry.affine_transform)
crop_images = _op(borders.crop_images)
extract_patches = _op(patches.extract_patches)
extract_patches_3d = _op(patches.extract_patches_3d)
gaussian_blur = _op(filters.gaussian_blur)
hsv_to_rgb = _op(colors.hsv_to_rgb)
map_coordinates = _op(sampling.map_coordinates)
pad_images = _op(borders.pad_images)
perspective_transform = _op(geometry.perspective_transform)
resize = _op(resizing.resize)
rgb_to_grayscale = _op(colors.rgb_to_grayscale)
rgb_to_hsv = _op(colors.rgb_to_hsv)
scale_and_translate = _op(resizing.scale_and_translate)
sobel_edges = _op(filters.sobel_edges)
ssim = _op(quality.ssim)
