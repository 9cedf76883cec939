"""Drawings of graphs: boxes that do not overlap, straight chains, few crossings, arrows that end at boxes."""

import itertools
import re
import xml.etree.ElementTree as ElementTree

import pytest

import fkeras as fk
from fkeras import layers
from fkeras.engine.network.layered import lay_out
from fkeras.engine.network.svg import to_svg

SVG = "{http://www.w3.org/2000/svg}"
CHAIN = ({"a": 0, "b": 1, "c": 2}, [("a", "b"), ("b", "c")])
SKIP = ({"a": 0, "b": 1, "c": 2}, [("a", "b"), ("b", "c"), ("a", "c")])
# in the order of the names, two arrows would cross
CROSSED = ({"a": 0, "b": 0, "c": 1, "d": 1}, [("a", "d"), ("b", "c")])
SHARED = ({"a": 0, "b": 1}, [("a", "b"), ("b", "a"), ("b", "b")])
SAME_RANK = ({"a": 0, "b": 0}, [("a", "b")])
WIDE = ({"a": 0, **{f"n{i}": 1 for i in range(9)}}, [("a", f"n{i}") for i in range(9)])


def _layout(case, direction="TB"):
    ranks, arrows = case
    sizes = {name: (40.0 + 10 * n, 20.0) for n, name in enumerate(ranks)}
    return sizes, lay_out(sizes, ranks, arrows, direction)


def _points(path):
    return [tuple(map(float, pair)) for pair in re.findall(r"(-?[\d.]+) (-?[\d.]+)", path)]


@pytest.mark.one_in(6)
@pytest.mark.parametrize("direction", ["TB", "LR", "BT", "RL"])
@pytest.mark.parametrize("case", [CHAIN, SKIP, CROSSED, SHARED, SAME_RANK, WIDE])
def test_boxes_do_not_overlap_and_lie_inside(case, direction):
    sizes, layout = _layout(case, direction)
    for name, (x, y) in layout.places.items():
        width, height = sizes[name]
        assert 0 <= x - width / 2 and x + width / 2 <= layout.width
        assert 0 <= y - height / 2 and y + height / 2 <= layout.height
    for a, b in itertools.combinations(layout.places, 2):
        (x1, y1), (x2, y2) = layout.places[a], layout.places[b]
        apart = abs(x1 - x2) >= (sizes[a][0] + sizes[b][0]) / 2
        assert apart or abs(y1 - y2) >= (sizes[a][1] + sizes[b][1]) / 2


def test_the_boxes_of_a_chain_stand_in_a_line():
    assert len({x for x, _ in _layout(CHAIN)[1].places.values()}) == 1
    assert len({y for _, y in _layout(CHAIN, "LR")[1].places.values()}) == 1
    ys = [y for _, y in _layout(CHAIN, "BT")[1].places.values()]
    assert ys == sorted(ys, reverse=True)


def test_a_long_arrow_passes_beside_the_boxes_between_its_ends():
    sizes, layout = _layout(SKIP)
    (x, y), points = layout.places["b"], _points(layout.paths[2])
    beside = [px for px, py in points if abs(py - y) <= sizes["b"][1] / 2]
    assert beside and all(abs(px - x) > sizes["b"][0] / 2 for px in beside)


def test_boxes_are_ordered_to_avoid_crossings():
    places = _layout(CROSSED)[1].places
    assert (places["a"][0] < places["b"][0]) == (places["d"][0] < places["c"][0])


def test_arrows_begin_and_end_at_their_boxes():
    sizes, layout = _layout(CHAIN)
    points = _points(layout.paths[0])
    (x1, y1), (x2, y2) = layout.places["a"], layout.places["b"]
    assert points[0] == (x1, y1 + sizes["a"][1] / 2)
    assert points[-2] == (x2, y2 - sizes["b"][1] / 2)  # the tip, between the sides of the head


def test_calls_of_a_shared_layer_point_back():
    _, layout = _layout(SHARED)
    bottom = layout.places["a"][1] + 10
    assert _points(layout.paths[1])[-2][1] == bottom  # from b up to a
    assert len(layout.paths) == 3


def test_a_network_without_layers_in_a_row_is_empty():
    layout = lay_out({}, {}, [])
    assert layout.paths == [] and layout.height == 0


@pytest.mark.exhaustive
def test_a_frame_contains_the_boxes_of_a_nested_network():
    x = fk.Input((3,), name="x")
    encoder = fk.Sequential([fk.Input((3,)), layers.Dense(4, name="hidden")], name="encoder")
    model = fk.Model(x, layers.ReLU(name="relu")(encoder(x)))
    root = ElementTree.fromstring(to_svg(model))
    frames = [box for box in root.iter(f"{SVG}rect") if box.get("stroke-dasharray")]
    assert len(frames) == 1 and len(list(root.iter(f"{SVG}rect"))) == 5
    group = next(root.iter(f"{SVG}g"))
    left, top = map(float, re.findall(r"[\d.]+", group.get("transform", "")))
    inner = [box for box in group.iter(f"{SVG}rect")]
    x0, y0, width, height = (float(frames[0].get(k, 0)) for k in ("x", "y", "width", "height"))
    for box in inner:
        bx, by, bw, bh = (float(box.get(k, 0)) for k in ("x", "y", "width", "height"))
        assert x0 <= left + bx and left + bx + bw <= x0 + width
        assert y0 <= top + by and top + by + bh <= y0 + height
    assert to_svg(model, nested=False).count("<rect") == 3


@pytest.mark.exhaustive
def test_equal_models_have_equal_drawings_and_long_models_are_drawn():
    def chain(count):
        return fk.Sequential([fk.Input((2,)), *[layers.ReLU() for _ in range(count)]])

    assert to_svg(chain(3)) == to_svg(chain(3))
    assert to_svg(chain(1200)).count("<rect") == 1201
