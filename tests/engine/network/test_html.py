"""Models in notebooks: escaped HTML with the calls, the table and the drawing."""

import sys
import types
import xml.etree.ElementTree as ElementTree

import jax
import pytest

import fkeras as fk
from fkeras import layers


def _nested():
    encoder = fk.Sequential([fk.Input((3,)), layers.Dense(4, name="hidden")], name="encoder")
    x = fk.Input((3,), name="x")
    return fk.Model(x, layers.Add(name="sum")([encoder(x), encoder(x)]), name="outer")


def _tree(model):
    return ElementTree.fromstring(f"<div>{model._repr_html_()}</div>")


def test_a_model_shows_its_table_and_its_drawing():
    x = fk.Input((3,), name="x")
    y = layers.Dense(4, name="hidden")(x)
    tree = _tree(fk.Model(x, layers.Add(name="sum")([y, layers.Dense(4, name="skip")(x)])))
    cells = [cell.text for cell in tree.iter("td")]
    assert {"hidden (Dense)", "(None, 4)", "16", "28", "x[0][0]"} <= set(cells)
    svg = "{http://www.w3.org/2000/svg}"
    boxes = [text.text for text in tree.iter(f"{svg}text")]
    assert {"x", "hidden", "skip", "sum", "Add"} <= set(boxes)
    assert len(list(tree.iter(f"{svg}rect"))) == 4
    assert len(list(tree.iter(f"{svg}path"))) == 4


def test_names_are_escaped():
    x = fk.Input((3,), name="x")
    html = fk.Model(x, layers.Dense(4, name="<script>&'\"")(x), name="<b>")._repr_html_()
    assert "<script" not in html and "<b>&" not in html
    assert html.count("&lt;script&gt;&amp;") == 4 and "&lt;b&gt;" in html


def test_models_without_a_graph_and_large_models():
    assert "Shapes need known inputs" in fk.Sequential([layers.Dense(2)])._repr_html_()
    assert "<svg" not in fk.Sequential([layers.Dense(2)])._repr_html_()
    large = fk.Sequential([fk.Input((2,)), *[layers.ReLU() for _ in range(201)]])
    assert "plot_model" in large._repr_html_() and "<svg" not in large._repr_html_()


@pytest.mark.exhaustive
def test_calls_are_shown_as_a_function_that_folds():
    tree = _tree(_nested())
    blocks = list(tree.iter("details"))
    titles = [block.find("summary").text for block in blocks]
    assert titles[0] == "Model(name='outer'):"
    assert titles[1].startswith("encoder = Sequential()(x)  ") and titles[2:] == [
        "Summary",
        "Graph",
    ]
    # the calls of the model are visible; a nested network, the table and the drawing are folded
    assert [block.get("open") for block in blocks] == ["", None, None, None]
    nested = [line.text for line in blocks[1].iter("div")]
    assert any(line and line.startswith("hidden = Dense(4)(input_layer)") for line in nested)
    text = "".join(blocks[0].itertext())
    assert "encoder:1 = encoder(x)" in text and "return sum" in text


@pytest.mark.exhaustive
def test_html_and_text_have_the_same_lines():
    for value in (_nested(), _nested().graph):
        first = next(ElementTree.fromstring(f"<div>{value._repr_html_()}</div>").iter("details"))
        lines = [line.strip() for line in repr(value).splitlines()]
        assert [text.strip() for text in first.itertext()] == lines
        assert "<script" not in value._repr_html_() and "onclick" not in value._repr_html_()


# treescope looks at all names of NumPy, deprecated ones too
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_treescope_shows_layers_and_models():
    treescope = pytest.importorskip("treescope")
    model = _nested().build(jax.random.key(0))
    assert "kernel=<jax.Array float32(3, 4)" in treescope.render_to_text(
        model.layers["encoder"].layers["hidden"]
    )
    text = treescope.render_to_text(model)
    assert text.startswith("Model(") and "  graph=<Graph of 4 calls of 3 layers>," in text
    assert "'encoder': Sequential(" in text and "Signature(" not in text
    assert len(treescope.render_to_html(model)) > 1000


class _Printer(types.ModuleType):
    """A stand-in for wadler_lindig, whose documents are texts."""

    TextDoc = str

    def pdoc(self, value, **options):
        assert options == {"indent": 2}
        return ", ".join(f"{name}: {type(layer).__name__}" for name, layer in value.items())


def test_the_printers_of_equinox_show_layers_and_a_folded_graph(monkeypatch):
    monkeypatch.setitem(sys.modules, "wadler_lindig", _Printer("wadler_lindig"))
    model = _nested()
    assert model.graph.__pdoc__(indent=2) == "<Graph of 4 calls of 3 layers>"
    assert model.layers.__pdoc__(indent=2) == "x: InputLayer, encoder: Sequential, sum: Add"


@pytest.mark.exhaustive
def test_wadler_lindig_prints_a_model():
    printer = pytest.importorskip("wadler_lindig")
    text = printer.pformat(_nested().build(jax.random.key(0)))
    assert "graph=<Graph of 4 calls of 3 layers>" in text and "kernel=f32[3,4](jax)" in text
