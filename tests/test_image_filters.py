"""Plain functions of colours, filters, histograms and quality: Keras's numbers, and edges."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fkeras.image.adjustments import auto_contrast, posterize, rescale
from fkeras.image.colors import hsv_to_rgb, rgb_to_grayscale, rgb_to_hsv
from fkeras.image.filters import gaussian_blur, sharpen, sobel_edges
from fkeras.image.histograms import count_levels, equalize, equalize_tiles
from fkeras.image.quality import psnr, ssim
from tests.keras_oracle import keras, keras_rules


def _images(shape=(2, 6, 7, 3), seed=0):
    return np.random.default_rng(seed).random(shape).astype("float32")


def _swap(x):
    return np.moveaxis(np.asarray(x), -1, -3)


def _same(ours, theirs, tolerance=1e-5):
    np.testing.assert_allclose(ours, np.asarray(theirs), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["rgb_to_grayscale", "rgb_to_hsv", "hsv_to_rgb"])
def test_colours_are_those_of_keras(name):
    ours = {
        "rgb_to_grayscale": rgb_to_grayscale,
        "rgb_to_hsv": rgb_to_hsv,
        "hsv_to_rgb": hsv_to_rgb,
    }[name]
    x = _images()
    x[0, 0, :3] = [[0, 0, 0], [0.5, 0.5, 0.5], [1, 1, 0]]
    with keras_rules():
        theirs = getattr(keras.ops.image, name)(x)
    _same(ours(x), theirs)
    _same(ours(x[1]), theirs[1])
    _same(ours(_swap(x), data_format="channels_first"), _swap(theirs))


def test_hue_goes_around_and_back():
    x = _images((1, 8, 8, 3))
    _same(hsv_to_rgb(rgb_to_hsv(x)), x, 1e-6)
    shifted = rgb_to_hsv(x).at[..., 0].add(3.0)
    _same(hsv_to_rgb(shifted), x)


@pytest.mark.parametrize("level", [0.0, 0.3, 1.0])
def test_slopes_at_grey_pixels_are_finite(level):
    x = jnp.full((1, 1, 3), level)
    for function in (rgb_to_hsv, hsv_to_rgb, lambda v: hsv_to_rgb(rgb_to_hsv(v))):
        slopes = jax.jacobian(function)(x)
        assert bool(jnp.isfinite(slopes).all())


def test_colours_of_bytes_and_half_precision():
    levels = np.array([[[255, 0, 0], [10, 20, 30]]], "uint8")
    with keras_rules():
        theirs = keras.ops.image.rgb_to_grayscale(levels)
    grey = rgb_to_grayscale(levels)
    assert grey.dtype == jnp.uint8
    np.testing.assert_array_equal(grey, theirs)
    half = _images().astype(jnp.bfloat16)
    assert rgb_to_hsv(half).dtype == jnp.bfloat16
    _same(rgb_to_grayscale(half).astype("float32"), rgb_to_grayscale(half.astype("float32")), 0.01)
    with pytest.raises(ValueError, match="floating images, received uint8"):
        rgb_to_hsv(levels)
    with pytest.raises(ValueError, match="1 or 3 channels on axis 0, received 6"):
        rgb_to_grayscale(np.ones((6, 7, 3)), "channels_first")
    with pytest.raises(ValueError, match="images: expected 3 axes"):
        rgb_to_grayscale(np.ones((7, 3)))


@pytest.mark.parametrize(("size", "sigma"), [((3, 3), (1.0, 1.0)), ((5, 2), (0.7, 2.0))])
def test_blur_is_that_of_keras(size, sigma):
    x = _images()
    with keras_rules():
        # Keras takes None for channels_first here
        theirs = keras.ops.image.gaussian_blur(x, size, sigma, "channels_last")
    _same(gaussian_blur(x, size, sigma), theirs)
    _same(gaussian_blur(x[0], size, sigma), theirs[0])
    _same(gaussian_blur(_swap(x), size, sigma, "channels_first"), _swap(theirs))


def test_blur_with_windows_of_each_image_and_without_width():
    x = _images()
    sigma = jnp.array([[0.5, 1.0], [2.0, 0.3]])
    both = gaussian_blur(x, (3, 5), sigma)
    for i in range(2):
        _same(both[i], gaussian_blur(x[i], (3, 5), sigma[i]), 1e-6)
    _same(gaussian_blur(x, (3, 3), (0.0, 0.0)), x, 1e-6)
    slope = jax.grad(lambda s: gaussian_blur(x, (3, 3), s).sum())(jnp.array([0.0, 1.0]))
    assert bool(jnp.isfinite(slope).all())
    assert gaussian_blur(np.ones((3, 3, 1), "uint8")).dtype == jnp.float32


def test_edges_are_those_of_keras():
    x = _images()
    with keras_rules():
        theirs = np.asarray(keras.ops.image.sobel_edges(x, "channels_last"))
        first = keras.ops.image.sobel_edges(_swap(x), "channels_first")
    _same(sobel_edges(x), theirs)
    _same(sobel_edges(x[0]), theirs[0])
    _same(sobel_edges(_swap(x), "channels_first"), first)


def test_sharpening_is_a_line_through_the_image():
    x = jnp.asarray(_images())
    _same(sharpen(x, 1.0), x, 1e-6)
    _same(sharpen(x, 2.0) - x, x - sharpen(x, 0.0), 1e-5)


@pytest.mark.parametrize("scale", [1.0, 255.0])
def test_similarity_is_that_of_keras(scale):
    one, two = (_images((2, 13, 12, 2), seed) * np.float32(scale) for seed in (0, 1))
    for options in ({"max_val": scale}, {"max_val": scale, "filter_size": 5, "filter_sigma": 1.0}):
        with keras_rules():
            theirs = np.asarray(keras.ops.image.ssim(one, two, **options))
        _same(ssim(one, two, **options), theirs)
    first = {**options, "data_format": "channels_first"}
    _same(ssim(_swap(one), _swap(two), **first), theirs)
    assert ssim(one[0], two[0], **options).shape == ()
    with keras_rules():
        noise = np.asarray(keras.ops.psnr(one, two, scale))
    _same(psnr(one, two, scale), noise)


def test_equal_images_and_bytes():
    x = _images((1, 12, 12, 1))
    value, slope = jax.value_and_grad(lambda v: ssim(v, x)[0])(jnp.asarray(x))
    assert float(value) == pytest.approx(1)
    assert bool(jnp.isfinite(slope).all())
    value, slope = jax.value_and_grad(lambda v: psnr(v, x, 1.0))(jnp.asarray(x))
    assert np.isposinf(value)
    np.testing.assert_array_equal(slope, 0)
    # Keras casts the similarity of bytes to bytes, and lets their difference wrap around
    levels = (x * 255).astype("uint8")
    other = levels[:, ::-1]
    assert 0 < float(ssim(levels, other, 255)[0]) + 1 < 2
    exact = psnr(levels.astype("float32"), other.astype("float32"), 255.0)
    _same(psnr(levels, other, 255), exact)
    with pytest.raises(ValueError, match="at least filter_size=11 pixels"):
        ssim(x[:, :5], x[:, :5])
    for function in (lambda a, b: ssim(a, b), lambda a, b: psnr(a, b, 1.0)):
        with pytest.raises(ValueError, match="two arrays of one shape"):
            function(x, x[:, :5])


def test_levels_are_counted():
    levels = np.random.default_rng(0).integers(0, 7, (3, 50))
    counts = count_levels(jnp.asarray(levels, "int32"), 7)
    np.testing.assert_array_equal(counts, [np.bincount(row, minlength=7) for row in levels])


def test_equalized_levels_are_even():
    # every level of bytes, in (0, 1) too: no level falls into its neighbour's place by rounding
    ramp = np.arange(256, dtype="float32").reshape(16, 16, 1)
    for scale in (1.0, 255.0):
        even = jax.jit(lambda x, s=scale: equalize(x, value_range=(0, 255 / s)))(ramp / scale)
        _same(even * scale, ramp, 1e-3)
    dark = equalize(jnp.asarray(ramp / 4))
    assert float(dark.min()) == 0
    assert float(dark.max()) == 255
    assert float(dark.mean()) == pytest.approx(127.5, abs=3)


def test_tiles_of_a_flat_image_and_of_a_small_one():
    flat = jnp.full((1, 9, 7, 1), 80.0)
    for limit in (0.0, 4.0):
        out = equalize_tiles(flat, limit, (8, 8))
        assert out.shape == flat.shape
        assert float(out.max() - out.min()) < 1e-3
    one = equalize_tiles(jnp.full((1, 1, 1), 3.0))
    assert bool(jnp.isfinite(one).all())


def test_bits_and_contrast_in_half_precision():
    levels = jnp.arange(256.0).reshape(16, 16, 1)
    for bits in (1, 4, 8):
        expected = (np.arange(256) >> (8 - bits)) << (8 - bits)
        for dtype in ("float32", "bfloat16"):
            kept = posterize(levels.astype(dtype), bits)
            np.testing.assert_array_equal(kept.astype("float32").ravel(), expected)
    stretched = auto_contrast(levels.astype("bfloat16") / 2)
    assert stretched.dtype == jnp.bfloat16
    assert float(stretched.max()) == 255
    _same(rescale(rescale(levels, (0, 255), (-1, 1)), (-1, 1), (0, 255)), levels, 1e-4)
