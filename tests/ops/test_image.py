"""Functions of images against `keras.ops.image`, and their edges.

Each test computes in one compiled program.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fkeras.nn.image import borders, boxes, patches, resizing
from fkeras.nn.warping import elastic, geometry, sampling
from tests.support.keras_oracle import keras, keras_rules

RNG = np.random.default_rng(0)
IMAGES = RNG.uniform(0, 255, (2, 5, 7, 3)).astype("float32")
BYTES = RNG.integers(0, 256, (2, 5, 7, 3)).astype("uint8")


def close(actual, expected, tolerance=1e-5):
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    actual, expected = actual.astype("float64"), expected.astype("float64")
    scale = max(1.0, np.abs(expected).max(initial=0.0))
    np.testing.assert_allclose(actual / scale, expected / scale, atol=tolerance, rtol=0)


def compiled(function, *args):
    """Calls a function as one compiled program, and returns NumPy arrays."""
    return jax.device_get(jax.jit(function)(*args))


def agree(*calls, tolerance=1e-5):
    """Compares calls with Keras's functions of the same names, all in one program."""

    def all_of_both(arrays):
        ours, theirs = [], []
        for call, call_arrays in zip(calls, arrays, strict=True):
            args = [call_arrays.get(i, a) for i, a in enumerate(call.args)]
            ours.append(call.func(*args, **call.keywords))
            with keras_rules():
                expected = getattr(keras.ops.image, call.func.__name__)
                theirs.append(expected(*args, **call.keywords))
        return ours, theirs

    arrays = [
        {i: a for i, a in enumerate(call.args) if isinstance(a, np.ndarray)} for call in calls
    ]
    for actual, expected in zip(*compiled(all_of_both, arrays), strict=True):
        close(actual, expected, tolerance)


def agrees(ours, *args, tolerance=1e-5, **options):
    """Compares one call with Keras's function of the same name."""
    agree(partial(ours, *args, **options), tolerance=tolerance)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("images", "size", "options"),
    [
        (IMAGES, (3, 9), {}),
        (IMAGES[0], (8, 4), {"interpolation": "lanczos5"}),
        (IMAGES, (3, 4), {"interpolation": "bicubic", "antialias": True}),
        (IMAGES, (3, 9), {"interpolation": "nearest", "crop_to_aspect_ratio": True}),
        (IMAGES, (8, 4), {"pad_to_aspect_ratio": True, "fill_value": 3.0}),
        (IMAGES, (2, 9), {"pad_to_aspect_ratio": True, "data_format": "channels_first"}),
        (BYTES, (8, 9), {"interpolation": "bicubic"}),
        (BYTES, (3, 9), {"interpolation": "nearest"}),
        (BYTES[:, :1, :1], (2, 3), {}),
    ],
)
def test_resize(images, size, options):
    agrees(resizing.resize, images, size, **options)


def test_resize_keeps_odd_rows_out_of_the_frame():
    # 7 rows are missing; as in Keras, padding adds whole pixels: three on each side
    assert resizing.window(3, 10, (4, 4), pad=True) == (-3, 0, 9, 10)
    assert resizing.window(1, 9, (2, 1), crop=True) == (0, 4, 1, 1)


@pytest.mark.exhaustive
def test_scale_and_translate():
    scale, translation = np.array([1.5, 0.7], "float32"), np.array([0.5, 1.0], "float32")
    args = IMAGES, (2, 9, 6, 3), scale, translation, (1, 2), "cubic"
    agrees(resizing.scale_and_translate, *args)


@pytest.mark.exhaustive
@pytest.mark.parametrize("fill_mode", sampling.FILL_MODES)
@pytest.mark.parametrize("order", [0, 1])
def test_map_coordinates(fill_mode, order):
    inputs = RNG.normal(size=(2, 3)).astype("float32")
    coordinates = RNG.uniform(-9, 14, (2, 9, 8)).astype("float32")
    ids = RNG.integers(0, 99, (6,)).astype("int32")
    line = RNG.uniform(-9, 14, (1, 7)).astype("float32")
    agree(
        partial(sampling.map_coordinates, inputs, coordinates, order, fill_mode, 0.5),
        partial(sampling.map_coordinates, ids, line, order, fill_mode),
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("fill_mode", sampling.FILL_MODES)
def test_sampling_one_pixel_far_away_and_at_infinity(fill_mode):
    coordinates = jnp.array([[-1e30, -jnp.inf, -3.0, 0.0, 0.5, 4.0, 1e30, jnp.inf]])

    def total(pixel):
        return sampling.map_coordinates(pixel, coordinates, 1, fill_mode, 2.0).sum()

    def nearest(pixel):
        return sampling.map_coordinates(pixel.astype("bfloat16"), coordinates, 0, fill_mode, 2.0)

    value, slope, half = compiled(
        lambda pixel: (*jax.value_and_grad(total)(pixel), nearest(pixel)),
        np.array([2.0], "float32"),
    )
    np.testing.assert_allclose(value, 16.0)
    assert np.isfinite(slope).all()
    assert half.dtype == jnp.bfloat16
    assert (half == 2).all()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("images", "interpolation", "options"),
    [
        (IMAGES, "bilinear", {"fill_mode": "reflect"}),
        (IMAGES.transpose(0, 3, 1, 2).copy(), "bilinear", {"data_format": "channels_first"}),
        (BYTES, "nearest", {"fill_mode": "wrap"}),
        (BYTES, "bilinear", {"fill_value": 7}),
    ],
)
def test_affine_transform(images, interpolation, options):
    transform = RNG.normal(size=(2, 8)).astype("float32") * 2
    transform[:, 6:] = 0
    agrees(geometry.affine_transform, images, transform, interpolation, **options)


@pytest.mark.exhaustive
def test_affine_transform_of_one_image_and_by_one_transform():
    transform = np.array([1.5, 0.2, -1, 0.1, 0.8, 1, 0, 0], "float32")
    agrees(geometry.affine_transform, IMAGES[0], transform)
    transform_images = geometry.affine_transform
    batched, unbatched = compiled(
        lambda x, t: (transform_images(x, t), transform_images(x[0], t)), IMAGES, transform
    )
    close(batched[0], unbatched)


def test_affine_transform_divides_by_the_last_row():
    """Keras documents the projective division, but omits it on JAX."""
    start = np.array([[[0, 0], [6, 0], [0, 4], [6, 4]]], "float32")
    end = start + RNG.uniform(-1, 1, (1, 4, 2)).astype("float32")
    line = np.array([1.0, 0, 0, 0, 1, 0, -0.5, 0], "float32")
    ours, perspective, outside = compiled(
        lambda x, start, end, line: (
            geometry.affine_transform(x[:1], geometry.homography(start, end)),
            geometry.perspective_transform(x[:1], start, end),
            geometry.affine_transform(x, line),
        ),
        IMAGES,
        start,
        end,
        line,
    )
    close(ours, perspective)
    # a column mapped to infinity gets the fill value
    assert np.isfinite(outside).all()


@pytest.mark.exhaustive
@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
def test_perspective_transform(interpolation):
    start = np.array([[0, 0], [6, 0], [0, 4], [6, 4]], "float32")
    end = start + RNG.uniform(-1, 1, (4, 2)).astype("float32")
    points = start, end
    images = IMAGES[0]
    if interpolation == "bilinear":
        images, points = IMAGES, [np.repeat(p[None], 2, 0) for p in points]
    options = {"interpolation": interpolation, "fill_value": 1.0}
    agrees(geometry.perspective_transform, images, *points, tolerance=1e-4, **options)


@pytest.mark.exhaustive
def test_smooth_fields_are_keras_blurred_noise():
    key, sigma = jax.random.key(3), 1.3
    size = int(6 * sigma) | 1

    def fields(key, traced):
        noise = jax.random.normal(key, (2, 2, 6, 8)) * sigma
        with keras_rules():
            blurred = keras.ops.image.gaussian_blur(
                noise.reshape(4, 6, 8, 1), (size, size), (sigma, sigma), "channels_last"
            )
        return (
            blurred.reshape(2, 2, 6, 8),
            elastic.smooth_fields(key, (2, 6, 8), sigma),
            elastic.smooth_fields(key, (2, 6, 8), traced, largest=3.0),
            elastic.smooth_fields(key, (2, 6, 8), 0.0),
        )

    blurred, static, traced, unblurred = compiled(fields, key, np.float32(sigma))
    np.testing.assert_allclose(static, blurred, atol=1e-5)
    # a traced strength gives the same result
    np.testing.assert_allclose(traced, static, atol=1e-5)
    assert not np.any(unblurred)


def test_elastic_transform():
    first = IMAGES.transpose(0, 3, 1, 2)

    @jax.jit
    def program(key):
        return (
            elastic.elastic_transform(IMAGES, 2.0, 1.0, key=key),
            elastic.elastic_transform(first, 2.0, 1.0, key=key, data_format="channels_first"),
        )

    elastic_images, swapped = jax.device_get(program(jax.random.key(0)))
    same_key, other_key = (np.asarray(program(jax.random.key(i))[0]) for i in (0, 1))
    assert (elastic_images == same_key).all()
    assert not (elastic_images == other_key).all()
    close(swapped.transpose(0, 2, 3, 1), elastic_images)
    with pytest.raises(ValueError, match="expected a key"):
        elastic.elastic_transform(IMAGES)


def test_pad_and_crop():
    pad, crop = partial(borders.pad_images, BYTES), partial(borders.crop_images, IMAGES[1])
    agree(
        partial(pad, top_padding=1, left_padding=2, target_height=9, target_width=10),
        partial(pad, bottom_padding=1, right_padding=0, top_padding=2, target_width=8),
        partial(crop, top_cropping=1, left_cropping=2, target_height=3, target_width=4),
        partial(crop, bottom_cropping=1, right_cropping=0, top_cropping=2, target_width=2),
    )
    first = IMAGES.transpose(0, 3, 1, 2)
    crop = partial(borders.crop_images, data_format="channels_first")
    assert jax.eval_shape(lambda x: crop(x, 1, 1, 1, 1), first).shape == (2, 3, 3, 5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: borders.crop_images(IMAGES, 5, 0, 0, 0), "at least one pixel"),
        (lambda: borders.crop_images(IMAGES, 3, 0, None, 0, target_height=3), "within the images"),
        (lambda: borders.crop_images(IMAGES, 0, 0, 0), "exactly two of left_cropping"),
        (lambda: borders.crop_images(IMAGES, -1, 0, 0, 0), "0 or more"),
        (
            lambda: borders.pad_images(IMAGES, 0, 0, None, 0, 2),
            "at least the size of the padded images",
        ),
        (lambda: resizing.resize(IMAGES, (0, 2)), "both 1 or more"),
        (lambda: resizing.resize(IMAGES, (2, 2), "area"), "interpolation: expected"),
        (lambda: resizing.resize(IMAGES[..., 0][0], (2, 2)), "expected 3 axes"),
        (lambda: geometry.affine_transform(IMAGES, np.ones(7)), r"\(8,\) or \(b, 8\)"),
        (lambda: geometry.perspective_transform(IMAGES, np.ones(2), np.ones(2)), r"\(4, 2\)"),
        (lambda: sampling.map_coordinates(IMAGES, np.ones((2, 3)), 1), "one row of coordinates"),
        (lambda: sampling.map_coordinates(np.ones(3), np.ones((1, 3)), 2), "order 0"),
        (lambda: patches.extract_patches(IMAGES, 6), "at least 6 cells on axis 1"),
        (lambda: patches.extract_patches(IMAGES, (0, 2)), "size: expected 2 integers"),
        (lambda: boxes.convert_format(np.ones((1, 3)), "xyxy", "xywh"), "four numbers"),
        (lambda: boxes.convert_format(np.ones((1, 4)), "xyxy", "rel_xywh"), "size of the images"),
        (lambda: boxes.convert_format(np.ones((1, 4)), "xyxx", "xywh"), "source: expected"),
        (lambda: boxes.clip_to_image_size({"boxes": np.ones((1, 4))}), "size of the images"),
    ],
)
def test_error_messages(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("shape", "size", "options"),
    [
        ((2, 5, 7, 3), (2, 3), {}),
        ((2, 5, 7, 3), 3, {"strides": (2, 1), "padding": "same"}),
        ((5, 7, 3), (2, 2), {"strides": 1, "dilation_rate": 2}),
        ((2, 3, 5, 7), (2, 3), {"data_format": "channels_first", "padding": "same"}),
        ((2, 4, 5, 6, 2), (2, 3, 2), {}),
        ((3, 4, 5, 6), (2, 2, 2), {"strides": 1, "data_format": "channels_first"}),
    ],
)
def test_patches(shape, size, options):
    images = RNG.normal(size=shape).astype("float32")
    agrees(patches.extract_patches, images, size, **options)


@pytest.mark.exhaustive
def test_patches_are_exact_and_of_any_dtype():
    ids = RNG.integers(-(2**31), 2**31, (1, 6, 6, 1)).astype("int32")
    windows = patches.extract_patches(ids, 3, 1, padding="same")
    np.testing.assert_array_equal(windows[0, 2, 2], ids[0, 1:4, 1:4].ravel())
    volume = RNG.normal(size=(4, 4, 4, 2)).astype("float32")
    agrees(patches.extract_patches_3d, volume, 2)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", boxes.FORMATS)
def test_box_formats(name):
    corners = np.sort(RNG.uniform(0, 9, (2, 3, 2, 2)), axis=2).reshape(2, 3, 4).astype("float32")
    other_format = {"rel_xywh": "rel_yxyx", "center_yxhw": "rel_center_xywh"}.get(
        name, "center_xywh"
    )
    convert = keras.utils.bounding_boxes.convert_format

    def compute(corners):
        with keras_rules():
            converted = convert(corners, "xyxy", name, 8, 12)
            expected = convert(converted, name, other_format, 8, 12)
        return (
            (boxes.convert_format(corners, "xyxy", name, 8, 12), converted),
            (boxes.convert_format(converted, name, other_format, 8, 12), expected),
        )

    for pair in compiled(compute, corners):
        close(*pair)


def test_clip_crop_and_pad_boxes():
    data = {
        "boxes": np.array([[[-3, 1, 4, 30], [20, 20, 25, 25], [1, 1, 2, 2]]], "float32"),
        "labels": np.array([[3, 4, 5]], "int32"),
    }
    two_axes = {**data, "labels": np.ones((1, 3, 2), "float32")}
    utils = keras.utils.bounding_boxes

    def compute(data, two_axes):
        with keras_rules():
            theirs = (
                utils.clip_to_image_size(dict(data), 9, 7),
                utils.crop(data["boxes"], 1, 2, 5, 6),
                utils.pad(data["boxes"], 1, 2),
            )
        ours = (
            boxes.clip_to_image_size(data, 9, 7),
            boxes.crop(data["boxes"], 1, 2, 5, 6),
            boxes.pad(data["boxes"], 1, 2),
        )
        return ours, theirs, boxes.clip_to_image_size(two_axes, 9, 7)

    ours, theirs, clipped = compiled(compute, data, two_axes)
    assert ours[0]["labels"].tolist() == [[3, -1, 5]]
    close(ours[0]["boxes"], theirs[0]["boxes"])
    close(ours[0]["labels"], theirs[0]["labels"])
    close(ours[1], theirs[1])
    close(ours[2], theirs[2])
    assert clipped["labels"][0, 1].tolist() == [-1, -1]


def test_boxes_follow_a_transform_even_a_singular_one():
    collapse = np.repeat(np.array([[[1.0], [1.0], [0.0]]], "float32"), 3, 2)
    corners = compiled(boxes.follow, np.ones((1, 2, 4), "float32"), collapse)
    assert np.isfinite(corners).all()
