"""Functions of colors, filters, histograms and image quality: Keras's numbers, and edges.

Each test computes in one compiled program.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fkeras.nn.image.adjustments import auto_contrast, posterize, rescale
from fkeras.nn.image.colors import hsv_to_rgb, rgb_to_grayscale, rgb_to_hsv
from fkeras.nn.image.filters import gaussian_blur, sharpen, sobel_edges
from fkeras.nn.image.histograms import count_levels, equalize, equalize_tiles
from fkeras.nn.image.quality import psnr, ssim
from tests.support.keras_oracle import keras, keras_rules


def _images(shape=(2, 6, 7, 3), seed=0):
    return np.random.default_rng(seed).random(shape).astype("float32")


def _swap(x):
    return np.moveaxis(np.asarray(x), -1, -3)


def _compiled(function, *args):
    """Calls a function as one compiled program, and returns NumPy arrays."""
    return jax.device_get(jax.jit(function)(*args))


def _same(ours, theirs, tolerance=1e-5):
    np.testing.assert_allclose(ours, np.asarray(theirs), rtol=tolerance, atol=tolerance)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["rgb_to_grayscale", "rgb_to_hsv", "hsv_to_rgb"])
def test_colours_match_keras(name):
    ours = {
        "rgb_to_grayscale": rgb_to_grayscale,
        "rgb_to_hsv": rgb_to_hsv,
        "hsv_to_rgb": hsv_to_rgb,
    }[name]
    x = _images()
    x[0, 0, :3] = [[0, 0, 0], [0.5, 0.5, 0.5], [1, 1, 0]]

    def compute(x, swapped):
        with keras_rules():
            theirs = getattr(keras.ops.image, name)(x)
        return theirs, ours(x), ours(x[1]), ours(swapped, data_format="channels_first")

    theirs, batched, unbatched, channels_first = _compiled(compute, x, _swap(x))
    _same(batched, theirs)
    _same(unbatched, theirs[1])
    _same(channels_first, _swap(theirs))


def test_hue_round_trip_and_period():
    x = _images((1, 8, 8, 3))

    def compute(x):
        hsv = rgb_to_hsv(x)
        return hsv_to_rgb(hsv), hsv_to_rgb(hsv.at[..., 0].add(3.0))

    restored, shifted = _compiled(compute, x)
    _same(restored, x, 1e-6)
    _same(shifted, x)


@jax.jit
def _slopes(x):
    functions = rgb_to_hsv, hsv_to_rgb, lambda v: hsv_to_rgb(rgb_to_hsv(v))
    return [jax.jacobian(function)(x) for function in functions]


@pytest.mark.exhaustive
@pytest.mark.parametrize("level", [0.0, 0.3, 1.0])
def test_gradients_at_grey_pixels_are_finite(level):
    slopes = _slopes(np.full((1, 1, 3), level, "float32"))
    assert np.isfinite(slopes).all()


def test_colours_of_bytes_and_half_precision():
    levels = np.array([[[255, 0, 0], [10, 20, 30]]], "uint8")
    half = _images().astype(jnp.bfloat16)

    def compute(levels, half):
        with keras_rules():
            theirs = keras.ops.image.rgb_to_grayscale(levels)
        greys = rgb_to_grayscale(half).astype("float32"), rgb_to_grayscale(half.astype("float32"))
        return theirs, rgb_to_grayscale(levels), greys

    theirs, grey, greys = _compiled(compute, levels, half)
    assert grey.dtype == jnp.uint8
    np.testing.assert_array_equal(grey, theirs)
    assert jax.eval_shape(rgb_to_hsv, half).dtype == jnp.bfloat16
    _same(*greys, 0.01)
    with pytest.raises(ValueError, match="floating images, received uint8"):
        rgb_to_hsv(levels)
    with pytest.raises(ValueError, match="1 or 3 channels on axis 0, received 6"):
        rgb_to_grayscale(np.ones((6, 7, 3)), "channels_first")
    with pytest.raises(ValueError, match="images: expected 3 axes"):
        rgb_to_grayscale(np.ones((7, 3)))


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("size", "sigma"), [((3, 3), (1.0, 1.0)), ((5, 2), (0.7, 2.0))])
def test_blur_matches_keras(size, sigma):
    x = _images()

    def compute(x, swapped):
        with keras_rules():
            # Keras treats None as channels_first here
            theirs = keras.ops.image.gaussian_blur(x, size, sigma, "channels_last")
        return (
            theirs,
            gaussian_blur(x, size, sigma),
            gaussian_blur(x[0], size, sigma),
            gaussian_blur(swapped, size, sigma, "channels_first"),
        )

    theirs, batched, unbatched, channels_first = _compiled(compute, x, _swap(x))
    _same(batched, theirs)
    _same(unbatched, theirs[0])
    _same(channels_first, _swap(theirs))


@pytest.mark.exhaustive
def test_blur_with_windows_of_each_image_and_without_width():
    x = _images()
    sigma = np.array([[0.5, 1.0], [2.0, 0.3]], "float32")

    def blurred(x, sigma):
        return (
            gaussian_blur(x, (3, 5), sigma),
            [gaussian_blur(x[i], (3, 5), sigma[i]) for i in range(2)],
            gaussian_blur(x, (3, 3), (0.0, 0.0)),
            jax.grad(lambda s: gaussian_blur(x, (3, 3), s).sum())(jnp.array([0.0, 1.0])),
        )

    batched, unbatched, unblurred, slope = _compiled(blurred, x, sigma)
    _same(batched, unbatched, 1e-6)
    _same(unblurred, x, 1e-6)
    assert np.isfinite(slope).all()
    assert jax.eval_shape(gaussian_blur, np.ones((3, 3, 1), "uint8")).dtype == jnp.float32


@pytest.mark.exhaustive
def test_edges_match_keras():
    x = _images()

    def compute(x, swapped):
        with keras_rules():
            theirs = keras.ops.image.sobel_edges(x, "channels_last")
            first = keras.ops.image.sobel_edges(swapped, "channels_first")
        return (
            (sobel_edges(x), theirs),
            (sobel_edges(x[0]), theirs[0]),
            (sobel_edges(swapped, "channels_first"), first),
        )

    for pair in _compiled(compute, x, _swap(x)):
        _same(*pair)


@pytest.mark.exhaustive
def test_sharpening_is_linear_in_the_factor():
    x = _images()
    smoothed, unchanged, sharpened = _compiled(
        lambda x: [sharpen(x, amount) for amount in (0.0, 1.0, 2.0)], x
    )
    _same(unchanged, x, 1e-6)
    _same(sharpened - x, x - smoothed, 1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("scale", [1.0, 255.0])
def test_similarity_matches_keras(scale):
    x, y = (_images((2, 13, 12, 2), seed) * np.float32(scale) for seed in (0, 1))
    settings = {"max_val": scale}, {"max_val": scale, "filter_size": 5, "filter_sigma": 1.0}
    first = {**settings[1], "data_format": "channels_first"}

    def compute(x, y, swapped):
        with keras_rules():
            theirs = [keras.ops.image.ssim(x, y, **options) for options in settings]
            noise = keras.ops.psnr(x, y, scale)
        return (
            ([ssim(x, y, **options) for options in settings], theirs),
            (ssim(*swapped, **first), theirs[1]),
            (psnr(x, y, scale), noise),
        )

    for pair in _compiled(compute, x, y, (_swap(x), _swap(y))):
        _same(*pair)
    assert jax.eval_shape(lambda a, b: ssim(a, b, **settings[1]), x[0], y[0]).shape == ()


@pytest.mark.exhaustive
def test_equal_images_and_bytes():
    x = _images((1, 12, 12, 1))
    levels = (x * 255).astype("uint8")
    mirrored = levels[:, ::-1]

    def compute(x, levels, mirrored):
        return (
            jax.value_and_grad(lambda v: ssim(v, x)[0])(x),
            jax.value_and_grad(lambda v: psnr(v, x, 1.0))(x),
            ssim(levels, mirrored, 255),
            psnr(levels, mirrored, 255),
            psnr(levels.astype("float32"), mirrored.astype("float32"), 255.0),
        )

    likeness, noise, of_bytes, wrapped, exact = _compiled(compute, x, levels, mirrored)
    value, slope = likeness
    assert float(value) == pytest.approx(1)
    assert np.isfinite(slope).all()
    value, slope = noise
    assert np.isposinf(value)
    np.testing.assert_array_equal(slope, 0)
    # Keras casts the similarity of bytes to bytes, and the difference of bytes wraps around
    assert 0 < float(of_bytes[0]) + 1 < 2
    _same(wrapped, exact)
    with pytest.raises(ValueError, match="at least filter_size=11 pixels"):
        ssim(x[:, :5], x[:, :5])
    for function in (lambda a, b: ssim(a, b), lambda a, b: psnr(a, b, 1.0)):
        with pytest.raises(ValueError, match="two arrays of one shape"):
            function(x, x[:, :5])


@pytest.mark.exhaustive
def test_levels_are_counted():
    levels = np.random.default_rng(0).integers(0, 7, (3, 50))
    counts = _compiled(lambda v: count_levels(v, 7), levels.astype("int32"))
    np.testing.assert_array_equal(counts, [np.bincount(row, minlength=7) for row in levels])


@pytest.mark.exhaustive
def test_equalized_levels_are_even():
    # all 256 levels, also scaled to (0, 1): rounding moves no level into its neighbour's bin
    ramp = np.arange(256, dtype="float32").reshape(16, 16, 1)
    scales = 1.0, 255.0

    def computed(ramps, dark):
        pairs = zip(ramps, scales, strict=True)
        even = [equalize(x, value_range=(0, 255 / scale)) for x, scale in pairs]
        return even, equalize(dark)

    levels, dark = _compiled(computed, [ramp / scale for scale in scales], ramp / 4)
    for scale, even in zip(scales, levels, strict=True):
        _same(even * scale, ramp, 1e-3)
    assert float(dark.min()) == 0
    assert float(dark.max()) == 255
    assert float(dark.mean()) == pytest.approx(127.5, abs=3)


@pytest.mark.exhaustive
def test_equalize_tiles_of_flat_and_small_images():
    flat = np.full((1, 9, 7, 1), 80.0, "float32")
    small = np.full((1, 1, 1), 3.0, "float32")
    *tiles, pixel = _compiled(
        lambda x, y: (
            *(equalize_tiles(x, limit, (8, 8)) for limit in (0.0, 4.0)),
            equalize_tiles(y),
        ),
        flat,
        small,
    )
    for out in tiles:
        assert out.shape == flat.shape
        assert float(out.max() - out.min()) < 1e-3
    assert np.isfinite(pixel).all()


@pytest.mark.exhaustive
def test_bits_and_contrast_in_half_precision():
    levels = np.arange(256, dtype="float32").reshape(16, 16, 1)
    dtypes = "float32", "bfloat16"

    def compute(levels):
        posterized = {
            bits: [posterize(levels.astype(d), bits).astype("float32") for d in dtypes]
            for bits in (1, 4, 8)
        }
        stretched = auto_contrast(levels.astype("bfloat16") / 2)
        return posterized, stretched, rescale(rescale(levels, (0, 255), (-1, 1)), (-1, 1), (0, 255))

    results, stretched, restored = _compiled(compute, levels)
    for bits, by_dtype in results.items():
        expected = (np.arange(256) >> (8 - bits)) << (8 - bits)
        for posterized in by_dtype:
            np.testing.assert_array_equal(posterized.ravel(), expected)
    assert stretched.dtype == jnp.bfloat16
    assert float(stretched.max()) == 255
    _same(restored, levels, 1e-4)
