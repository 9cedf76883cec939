"""Grids of images: pixels, titles, rows, and errors."""

import base64
import io
import xml.etree.ElementTree as ElementTree

import jax.numpy as jnp
import numpy as np
import pytest

from fkeras.utils import image_grid

SVG = "{http://www.w3.org/2000/svg}"
IMAGES = np.linspace(0, 1, 3 * 4 * 6).reshape(3, 4, 6).astype("float32")
SCORES = np.asarray([[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]])


def _texts(picture):
    root = ElementTree.fromstring(picture.svg)
    return [(text.text, text.get("fill")) for text in root.iter(f"{SVG}text")]


def _images(picture):
    image = pytest.importorskip("PIL.Image")
    root = ElementTree.fromstring(picture.svg)
    for element in root.iter(f"{SVG}image"):
        data = element.get("href", "").removeprefix("data:image/png;base64,")
        yield np.asarray(image.open(io.BytesIO(base64.b64decode(data))))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("images", "expected"),
    [
        (IMAGES, np.rint(IMAGES * 255)),
        (jnp.asarray(IMAGES)[..., None], np.rint(IMAGES * 255)),
        (IMAGES / 2, np.rint(IMAGES / 2 * 255)),
        (IMAGES * 16, np.rint(IMAGES * 255)),
        (IMAGES * 2 - 1, np.rint(IMAGES * 255)),
        ((IMAGES * 255).astype("uint8"), (IMAGES * 255).astype("uint8")),
        (IMAGES > 0.5, (IMAGES > 0.5) * 255),
        (list(IMAGES), np.rint(IMAGES * 255)),
    ],
)
def test_pixels(images, expected):
    shown = list(_images(image_grid(images)))
    np.testing.assert_allclose(shown, expected, atol=1)


@pytest.mark.exhaustive
@pytest.mark.parametrize("channels", [3, 4])
def test_colors(channels):
    images = np.random.default_rng(0).integers(0, 256, (2, 4, 5, channels), "uint8")
    np.testing.assert_array_equal(list(_images(image_grid(images))), images)


def test_titles_show_predictions_and_mistakes():
    names = ["cat", "<dog>"]
    texts = _texts(image_grid(IMAGES, SCORES, [0, 0, 1], class_names=names))
    assert [text for text, _ in texts] == ["cat 90%", "<dog> 80%, not cat", "<dog> 60%"]
    assert [color for _, color in texts] == ["currentColor", "#dc2626", "currentColor"]
    assert [text for text, _ in _texts(image_grid(IMAGES, [3, 1, 2]))] == ["3", "1", "2"]
    assert [text for text, _ in _texts(image_grid(IMAGES, SCORES * 9 - 3))] == ["0", "1", "1"]
    assert [text for text, _ in _texts(image_grid(IMAGES, labels=[3, 1, 2]))] == ["3", "1", "2"]
    assert _texts(image_grid(IMAGES)) == []


def test_rows_and_columns():
    images = np.zeros((12, 4, 4))

    def places(**options):
        root = ElementTree.fromstring(image_grid(images, **options).svg)
        elements = list(root.iter(f"{SVG}image"))
        return [len({element.get(axis) for element in elements}) for axis in ("x", "y")]

    assert places() == [8, 2]
    assert places(columns=3) == [3, 4]
    assert places(row_names=[0, "real"]) == [6, 2]
    assert _texts(image_grid(images, row_names=[0, "real"])) == [
        ("0", "currentColor"),
        ("real", "currentColor"),
    ]
    root = ElementTree.fromstring(image_grid(IMAGES, size=30).svg)
    image = next(root.iter(f"{SVG}image"))
    assert (image.get("width"), image.get("height")) == ("30", "20")


def test_a_picture_is_saved(tmp_path):
    path = image_grid(IMAGES).save(tmp_path / "grid.svg")
    assert ElementTree.parse(path).getroot().get("aria-label") == "3 images"


@pytest.mark.parametrize(
    ("images", "options", "error", "message"),
    [
        (np.zeros((4, 4)), {}, ValueError, r"A single image is images\[None\]"),
        (np.zeros((2, 4, 4, 2)), {}, ValueError, r"received the shape \(2, 4, 4, 2\)"),
        (np.zeros((0, 4, 4)), {}, ValueError, "at least one image"),
        ([np.zeros((4, 4)), np.zeros((5, 4))], {}, TypeError, "images of one size"),
        ("digits.png", {}, TypeError, "an array of numbers"),
        (np.full((2, 4, 4), np.nan), {}, ValueError, "received NaN or infinity in image 0"),
        (IMAGES, {"predictions": [1, 2]}, ValueError, "predictions: expected 3 rows"),
        (IMAGES, {"labels": [1, 2]}, ValueError, "labels: expected 3 rows"),
        (IMAGES, {"columns": 0}, ValueError, "columns: expected a positive integer"),
        (IMAGES, {"size": 0.5}, ValueError, "size: expected a positive integer"),
        (IMAGES, {"row_names": ["a", "b"], "columns": 1}, ValueError, "expected 3 names"),
    ],
)
def test_invalid_arguments_are_reported(images, options, error, message):
    with pytest.raises(error, match=message):
        image_grid(images, **options)


def test_heat_colors_the_images():
    images = np.full((2, 4, 4), 0.5)
    heat = np.zeros((2, 4, 4))
    heat[0, 1, 1], heat[1, 2, 2] = 2.0, -0.1
    plain = image_grid(np.repeat(images[..., None], 3, -1))
    cold = image_grid(images, heat=0 * heat)
    assert cold.svg == plain.svg  # no heat, no color
    assert image_grid(images, heat=heat).svg != plain.svg
    one = image_grid(images, heat=heat[..., None])
    assert one.svg == image_grid(images, heat=heat).svg
    with pytest.raises(ValueError, match=r"heat: expected numbers of shape \(2, 4, 4\)"):
        image_grid(images, heat=heat[:, :3])
    with pytest.raises(ValueError, match="heat: expected finite numbers"):
        image_grid(images, heat=heat * np.nan)
