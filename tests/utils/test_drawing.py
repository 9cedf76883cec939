"""Drawings of models: SVG, images, and text in Graphviz's language."""

import pathlib
import xml.etree.ElementTree as ElementTree

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers


def _model():
    x = fk.Input((4,), name="x")
    inner = fk.Sequential([fk.Input((4,)), layers.Dense(3, activation="relu")], name="inner")
    return fk.Model(x, layers.Dense(2, trainable=False, name="head")(inner(x)))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ({}, ['"head" [label="head\\nDense"];', '"x" -> "inner";', 'rankdir="TB";', 'dpi="200";']),
        ({"rankdir": "LR", "dpi": 96, "splines": "curved"}, ['rankdir="LR";', 'dpi="96";']),
        ({"show_shapes": True}, ['"x" [label="x\\nInputLayer\\n(None, 4)"];']),
        ({"show_dtype": True}, ['"x" [label="x\\nInputLayer\\nfloat32"];']),
        ({"show_layer_names": False}, ['"head" [label="Dense"];']),
        ({"expand_nested": True}, ['subgraph "cluster_inner" {']),
        (
            {"expand_nested": True, "show_layer_activations": True, "show_trainable": True},
            [
                '[label="dense\\nDense\\nrelu\\ntrainable"];',
                'label="head\\nDense\\nlinear\\nfrozen"',
            ],
        ),
    ],
    ids=str,
)
def test_options_change_the_dot_text(options, lines):
    text = fk.utils.model_to_dot(_model().build(jax.random.key(0)), **options)
    for line in lines:
        assert line in text, text


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("name", "start"), [("m.dot", "digraph"), ("m.mmd", "flowchart TD"), ("m.svg", "<svg")]
)
def test_text_formats_need_no_program(tmp_path, name, start, monkeypatch):
    monkeypatch.setenv("PATH", "")
    path = fk.utils.plot_model(_model(), tmp_path / "new" / name)
    assert (tmp_path / "new" / name).read_text().startswith(start)
    assert path == str(tmp_path / "new" / name)


STARTS = {
    "png": b"\x89PNG",
    "pdf": b"%PDF",
    "jpg": b"\xff\xd8",
    "jpeg": b"\xff\xd8",
    "eps": b"%!PS",
    "ps": b"%!PS",
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("extension", STARTS)
def test_images_need_no_program(tmp_path, extension, monkeypatch):
    monkeypatch.setenv("PATH", "")
    path = fk.utils.plot_model(_model(), tmp_path / f"m.{extension}", expand_nested=True, dpi=48)
    assert pathlib.Path(path).read_bytes().startswith(STARTS[extension])


@pytest.mark.parametrize("dark", [False, True])
def test_an_image_shows_the_drawing(tmp_path, dark):
    image = pytest.importorskip("matplotlib.image", reason="the extra viz: pip install matplotlib")
    picture = fk.utils.draw(_model().build(jax.random.key(0)))
    root = ElementTree.fromstring(picture.svg)
    pixels = image.imread(picture.save(tmp_path / "m.png", dpi=192, dark=dark))[..., :3]
    width, height = float(root.get("width")), float(root.get("height"))
    # 192 dots per inch, two a pixel; versions of matplotlib round differently
    np.testing.assert_allclose(pixels.shape, (2 * height, 2 * width, 3), rtol=0, atol=1)
    paper = np.array([24, 24, 27]) / 255 if dark else np.ones(3)
    np.testing.assert_allclose(pixels[0, 0], paper, atol=0.01)
    shift = {}
    for group in root.iter():
        offset = [float(n) for n in group.get("transform", "translate(0 0)")[10:-1].split()]
        for element in group:
            outer = shift.get(group, (0, 0))
            shift[element] = (outer[0] + offset[0], outer[1] + offset[1])
    for box in root.iter("{http://www.w3.org/2000/svg}rect"):
        # a place inside of the corner, where no text is
        x, y = (int(2 * (float(box.get(n)) + move + 4)) for n, move in zip("xy", shift[box]))
        color = {"#3b82f6": (59, 130, 246), "#808080": (128, 128, 128)}.get(box.get("fill"))
        share = float(box.get("fill-opacity", 0))
        expected = paper if color is None else share * np.array(color) / 255 + (1 - share) * paper
        np.testing.assert_allclose(pixels[y, x], expected, atol=0.01)
    ink = np.abs(pixels - paper).max(-1) > 0.5
    assert 0.02 < ink.mean() < 0.3  # lines and letters


def test_an_image_of_pictures_and_of_names_with_dollars(tmp_path):
    image = pytest.importorskip("matplotlib.image", reason="the extra viz: pip install matplotlib")
    pixels = np.zeros((2, 8, 8, 3), "uint8")
    pixels[1] = (255, 0, 0)
    grid = fk.utils.image_grid(pixels, [0, 1], class_names=["$a_{$", "b"], size=64)
    shown = image.imread(grid.save(tmp_path / "grid.png", dpi=96))[..., :3]
    assert shown.shape[:2] == tuple(
        int(float(ElementTree.fromstring(grid.svg).get(name))) for name in ("height", "width")
    )
    np.testing.assert_allclose(shown[60, 6 + 64 + 6 + 32], (1, 0, 0), atol=0.01)
    np.testing.assert_allclose(shown[60, 6 + 32], (0, 0, 0), atol=0.01)


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda m: fk.utils.plot_model(m, "model"),
            ValueError,
            "to_file: expected a path with an extension",
        ),
        (lambda m: fk.utils.plot_model(m, "model.doc"), ValueError, "received 'model.doc'"),
        (lambda m: fk.utils.plot_model(m, 3), TypeError, "expected a path"),
        (lambda m: fk.utils.plot_model(layers.Dense(2), "m.dot"), TypeError, "received Dense"),
        (lambda m: fk.utils.model_to_dot(None), TypeError, "received NoneType"),
        (lambda m: fk.utils.model_to_dot(m, rankdir="up"), ValueError, "rankdir: expected 'TB'"),
        (lambda m: fk.utils.model_to_dot(m, dpi=0), ValueError, "dpi: expected an integer"),
        (lambda m: fk.utils.model_to_dot(m, splines="round"), ValueError, "splines: expected"),
        (lambda m: fk.utils.model_to_dot(m, show_shapes=1), ValueError, "show_shapes: expected"),
        (lambda m: fk.utils.model_to_dot(fk.Sequential([])), ValueError, "A picture"),
        (lambda m: fk.utils.draw(layers.Dense(2)), TypeError, "draw: expected a model"),
        (lambda m: fk.utils.draw(m, rankdir="up"), ValueError, "draw: rankdir: expected 'TB'"),
        (lambda m: fk.utils.draw(m, expand_nested=1), ValueError, "draw: expand_nested"),
        (lambda m: fk.utils.draw(fk.Sequential([])), ValueError, "A picture"),
        (lambda m: fk.utils.draw(m).save("m.bmp"), ValueError, "a path that ends in .png"),
        (lambda m: fk.utils.draw(m).save("m.png", dpi=0), ValueError, "Picture.save: dpi"),
        (lambda m: fk.utils.draw(m).save("m.svg", dark=2), ValueError, "Picture.save: dark"),
    ],
)
def test_invalid_arguments_are_reported(call, error, message, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(error, match=message):
        call(_model())
    assert not list(tmp_path.iterdir())


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("options", "texts"),
    [
        ({}, ["x", "InputLayer", "(None, 4)", "inner", "dense", "(None, 3)", "head", "(None, 2)"]),
        ({"expand_nested": False, "show_shapes": False}, ["x", "InputLayer", "inner", "head"]),
        ({"show_dtype": True, "show_layer_activations": True}, ["float32", "relu", "linear"]),
        ({"show_layer_names": False, "show_trainable": True}, ["Sequential", "frozen"]),
    ],
    ids=str,
)
def test_options_change_the_drawing(options, texts):
    picture = fk.utils.draw(_model().build(jax.random.key(0)), **options)
    root = ElementTree.fromstring(picture.svg)
    shown = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert set(texts) <= set(shown), shown
    assert ("dense" in shown) == (
        options.get("expand_nested", True) and options.get("show_layer_names", True)
    )


def test_notebooks_show_a_picture_and_files_have_a_background(tmp_path):
    picture = fk.utils.draw(_model())
    assert picture.svg in picture._repr_html_() and len(repr(picture)) < 100
    path = picture.save(tmp_path / "new" / "m.svg")
    text = (tmp_path / "new" / "m.svg").read_text()
    assert path.endswith("m.svg") and "background:white" in text
    assert ElementTree.fromstring(text).get("width") is not None
