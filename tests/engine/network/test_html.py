"""Models in notebooks: escaped HTML with the table and the drawing."""

import xml.etree.ElementTree as ElementTree

import fkeras as fk
from fkeras import layers


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
    assert html.count("&lt;script&gt;&amp;") == 2 and "&lt;b&gt;" in html


def test_models_without_a_graph_and_large_models():
    assert "Shapes need known inputs" in fk.Sequential([layers.Dense(2)])._repr_html_()
    assert "<svg" not in fk.Sequential([layers.Dense(2)])._repr_html_()
    large = fk.Sequential([fk.Input((2,)), *[layers.ReLU() for _ in range(201)]])
    assert "plot_model" in large._repr_html_() and "<svg" not in large._repr_html_()
