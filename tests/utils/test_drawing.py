"""Drawings of models: SVG, text in Graphviz's language, and files that Graphviz draws."""

import os
import stat
import xml.etree.ElementTree as ElementTree

import jax
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


def _install_dot(folder, body):
    program = folder / "dot"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(program.stat().st_mode | stat.S_IEXEC)


@pytest.mark.skipif(os.name != "posix", reason="the stand-in for Graphviz is a shell script")
def test_graphviz_draws_the_other_formats(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    _install_dot(tmp_path, 'echo "$1"; cat')
    fk.utils.plot_model(_model(), tmp_path / "m.pdf")
    assert (tmp_path / "m.pdf").read_text().startswith("-Tpdf\ndigraph model {")
    _install_dot(tmp_path, "cat > /dev/null; echo broken >&2; exit 3")
    with pytest.raises(RuntimeError, match="received the error: broken"):
        fk.utils.plot_model(_model(), tmp_path / "m.png")
    assert not (tmp_path / "m.png").exists()


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: fk.utils.plot_model(m), ImportError, "dot of Graphviz, which is missing"),
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
        (lambda m: fk.utils.draw(m).save("m.png"), ValueError, "a path that ends in .svg"),
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
