"""Images in files and arrays: pixels equal Keras's, and errors for files that are not images."""

import io

import numpy as np
import pytest

import fkeras as fk
from tests.support.keras_oracle import keras

pytest.importorskip("PIL")
RNG = np.random.default_rng(0)
COLORS = RNG.integers(0, 256, (7, 9, 3)).astype("uint8")
FILTERS = ("nearest", "bilinear", "bicubic", "lanczos", "box", "hamming")


@pytest.fixture(scope="module")
def picture(tmp_path_factory):
    path = tmp_path_factory.mktemp("images") / "picture.png"
    fk.utils.save_img(path, COLORS, scale=False)
    return path


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", ["rgb", "rgba", "grayscale"])
@pytest.mark.parametrize("size", [None, (4, 4), (9, 5), (14, 4)], ids=str)
@pytest.mark.parametrize("crop", [False, True])
def test_loaded_pixels_equal_keras(picture, mode, size, crop):
    for method in FILTERS if size == (4, 4) else FILTERS[1:2]:
        options = {"color_mode": mode, "target_size": size, "interpolation": method}
        options["keep_aspect_ratio"] = crop
        expected = keras.utils.load_img(picture, **options)
        image = fk.utils.load_img(str(picture), **options)
        assert image.mode == expected.mode
        np.testing.assert_array_equal(np.asarray(image), np.asarray(expected))


@pytest.mark.exhaustive
def test_open_files_and_paths_as_bytes_are_read(picture):
    for source in (io.BytesIO(picture.read_bytes()), open(picture, "rb"), bytes(picture)):
        np.testing.assert_array_equal(np.asarray(fk.utils.load_img(source)), COLORS)
        if hasattr(source, "close"):
            source.close()


@pytest.mark.exhaustive
@pytest.mark.parametrize("data_format", [None, "channels_last", "channels_first"])
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("scale", [False, True])
def test_conversion_between_arrays_and_images_equals_keras(data_format, channels, scale):
    shape = (channels, 5, 6) if data_format == "channels_first" else (5, 6, channels)
    x = RNG.integers(0, 256, shape).astype("float32")
    expected = keras.utils.array_to_img(x, data_format, scale)
    image = fk.utils.array_to_img(x, data_format, scale)
    assert image.mode == expected.mode
    np.testing.assert_array_equal(np.asarray(image), np.asarray(expected))
    array = fk.utils.img_to_array(image, data_format)
    np.testing.assert_array_equal(array, keras.utils.img_to_array(expected, data_format))
    assert array.dtype == "float32" and array.shape == shape


@pytest.mark.exhaustive
def test_gray_images_with_32_bits_keep_their_values(tmp_path):
    x = RNG.integers(0, 60000, (4, 5, 1))
    image = fk.utils.array_to_img(x, scale=False)
    assert image.mode == keras.utils.array_to_img(x, scale=False).mode == "I"
    np.testing.assert_array_equal(fk.utils.img_to_array(image, dtype="int32"), x)
    fk.utils.save_img(tmp_path / "gray.tif", x, scale=False)
    loaded = fk.utils.load_img(tmp_path / "gray.tif", color_mode="grayscale")
    np.testing.assert_array_equal(np.asarray(loaded), x[:, :, 0])


def test_a_constant_image_is_black():
    assert not np.asarray(fk.utils.array_to_img(np.full((2, 2, 3), 7.0))).any()


@pytest.mark.one_in(7)
@pytest.mark.parametrize(
    "name", ["a.png", "a.jpg", "a.jpeg", "a.bmp", "a.gif", "a.webp", "sub/a.tif"]
)
def test_the_file_extension_selects_the_format(tmp_path, name):
    fk.utils.save_img(tmp_path / name, COLORS)
    assert fk.utils.load_img(tmp_path / name).size == (9, 7)


def test_saving_transparency_as_jpeg_warns(tmp_path):
    with pytest.warns(UserWarning, match="JPEG has no transparency"):
        fk.utils.save_img(tmp_path / "a.jpg", np.ones((4, 4, 4)))


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda p: fk.utils.load_img(p / "no.png"), FileNotFoundError, "no.png"),
        (lambda p: fk.utils.load_img(p), IsADirectoryError, "Is a directory"),
        (lambda p: fk.utils.load_img(p / "text.png"), ValueError, "text.png.*expected an image"),
        (lambda p: fk.utils.load_img(p / "cut.png"), ValueError, "cut.png.*expected an image"),
        (lambda p: fk.utils.load_img(p / "a.eps"), ValueError, "expected an image in the format"),
        (lambda p: fk.utils.load_img(3), TypeError, "expected a path or an open binary file"),
        (lambda p: fk.utils.load_img(p, "cmyk"), ValueError, "color_mode: expected 'grayscale'"),
        (lambda p: fk.utils.load_img(p, target_size=0), ValueError, "target_size: expected"),
        (lambda p: fk.utils.load_img(p, target_size=(1, 2, 3)), ValueError, "target_size"),
        (lambda p: fk.utils.load_img(p, interpolation="area"), ValueError, "interpolation"),
        (lambda p: fk.utils.load_img(p, keep_aspect_ratio=1), ValueError, "keep_aspect_ratio"),
        (lambda p: fk.utils.img_to_array("a.png"), ValueError, "Read a file with load_img"),
        (lambda p: fk.utils.img_to_array(np.ones(3)), ValueError, r"received \(3,\)"),
        (lambda p: fk.utils.img_to_array(np.ones((2, 2)), dtype="flot"), ValueError, "dtype"),
        (lambda p: fk.utils.img_to_array(np.ones((2, 2)), "last"), ValueError, "channels_last"),
        (lambda p: fk.utils.array_to_img(np.ones((2, 2))), ValueError, r"received \(2, 2\)"),
        (lambda p: fk.utils.array_to_img(np.ones((2, 2, 2))), ValueError, "1, 3 or 4 channels"),
        (lambda p: fk.utils.array_to_img(np.ones((0, 2, 3))), ValueError, "1, 3 or 4 channels"),
        (lambda p: fk.utils.array_to_img("abc"), ValueError, "expected an array of numbers"),
        (lambda p: fk.utils.array_to_img(np.full((2, 2, 3), np.nan)), ValueError, "NaN"),
        (lambda p: fk.utils.array_to_img(COLORS * 2.0, scale=False), ValueError, "from 0 to 255"),
        (lambda p: fk.utils.array_to_img(COLORS - 9.0, scale=False), ValueError, "from 0 to 255"),
        (lambda p: fk.utils.save_img(p / "a", COLORS), ValueError, "expected a format"),
        (lambda p: fk.utils.save_img(p / "a.xyz", COLORS), ValueError, "received 'xyz'"),
        (lambda p: fk.utils.save_img(io.BytesIO(), COLORS), ValueError, "expected a format"),
        (lambda p: fk.utils.save_img(p / "a.png", COLORS, file_format=3), ValueError, "3"),
        (lambda p: fk.utils.save_img(3, COLORS), TypeError, "expected a path"),
    ],
)
def test_invalid_arguments_and_files_are_reported(tmp_path, picture, call, error, message):
    (tmp_path / "text.png").write_text("<html>")
    (tmp_path / "cut.png").write_bytes(picture.read_bytes()[:60])
    (tmp_path / "a.eps").write_text(
        "%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 1 1\n%%EndComments\n"
    )
    with pytest.raises(error, match=message):
        call(tmp_path)


def test_a_failed_save_leaves_the_old_file(tmp_path):
    fk.utils.save_img(tmp_path / "a.png", COLORS)
    before = (tmp_path / "a.png").read_bytes()
    with pytest.raises(ValueError, match="NaN"):
        fk.utils.save_img(tmp_path / "a.png", np.full((2, 2, 3), np.nan))
    assert (tmp_path / "a.png").read_bytes() == before
