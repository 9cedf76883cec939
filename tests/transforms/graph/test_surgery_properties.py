"""Laws of surgery on random models."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fkeras as fk
from fkeras import layers, transforms

X = np.linspace(-1, 1, 6, dtype="float32").reshape(2, 3)


@st.composite
def models(draw):
    """A model of up to six calls on tensors of width 3, with shared layers and a nested network."""
    x = fk.Input((3,), name="x")
    tensors, shared = [x], layers.Dense(3, "tanh", name="shared")
    inner = fk.Sequential(
        [fk.Input((3,)), layers.Dense(3, name="a"), layers.ReLU(name="b")], name="inner"
    )
    for number in range(draw(st.integers(2, 6))):
        source = tensors[draw(st.integers(0, len(tensors) - 1))]
        kind = draw(st.sampled_from(["dense", "shared", "inner", "add", "relu"]))
        if kind == "add":
            y = layers.Add(name=f"add{number}")([source, tensors[-1]])
        elif kind in ("shared", "inner"):
            y = {"shared": shared, "inner": inner}[kind](source)
        else:
            y = {"dense": layers.Dense(3), "relu": layers.ReLU()}[kind].replace(name=f"l{number}")(
                source
            )
        tensors.append(y)
    return fk.Model(x, layers.Dense(2, name="head")(tensors[-1])).build(jax.random.key(0))


def targets(model):
    """Paths of layers with one input and one output."""
    skip = (layers.InputLayer, layers.Add)
    return [p for p, layer in fk.engine.sublayers(model) if p and not isinstance(layer, skip)]


@pytest.mark.exhaustive
@settings(max_examples=25, deadline=None)
@given(models(), st.data())
def test_replace_and_replace_back_is_the_identity(model, data):
    path = data.draw(st.sampled_from(targets(model)))
    old = dict(fk.engine.sublayers(model))[path]
    new = transforms.replace(model, {path: layers.Rescaling(2.0)})
    assert transforms.replace(new, {path: old}) == model


@pytest.mark.exhaustive
@settings(max_examples=25, deadline=None)
@given(models(), st.data())
def test_insert_and_remove_is_the_identity(model, data):
    path = data.draw(st.sampled_from(targets(model)))
    side = data.draw(st.sampled_from(["after", "before"]))
    new = transforms.insert(model, layers.ReLU(name="new"), **{side: path})
    assert new != model
    parent = path.rpartition("/")[0]
    assert transforms.remove(new, f"{parent}/new".strip("/")) == model


@pytest.mark.exhaustive
@settings(max_examples=10, deadline=None)
@given(models(), st.data())
def test_cut_and_call_again_is_the_whole(model, data):
    graph = model.graph
    # a place that all paths pass: the parts on both sides are closed
    places = [
        (call.layer, graph.node_indices[number])
        for number, call in enumerate(graph.calls)
        if not call.is_input and set(graph.nodes) == _around(graph, number)
    ]
    name, node = data.draw(st.sampled_from(places))
    head = transforms.cut(model, outputs=(name, node))
    tail = transforms.cut(model, inputs=(name, node))
    with jax.disable_jit():
        np.testing.assert_array_equal(tail(head(X)), model(X))


def _around(graph, number):
    layer, node = graph.calls[number].layer, graph.node_indices[number]
    before = set(graph.ancestors(layer, node))
    after = set(graph.descendants(layer, node))
    crossing = {
        key
        for key in before
        if any(
            graph.node_key(n) in after and graph.node_key(graph.producer(s)[0]) == key
            for n, call in enumerate(graph.calls)
            for s in call.inputs
        )
    }
    return (before | after | {graph.node_key(number)}) - crossing


@settings(max_examples=15, deadline=None)
@given(models(), st.data())
def test_a_patched_path_only_changes_its_layer(model, data):
    path = data.draw(st.sampled_from(targets(model)))
    new = transforms.replace(model, {path: lambda layer: layers.Rescaling(2.0)})
    before, after = dict(fk.engine.sublayers(model)), dict(fk.engine.sublayers(new))
    around = {path[:i] for i, c in enumerate(path) if c == "/"} | {"", path}
    inside = f"{path}/"
    for at, layer in before.items():
        if at not in around and not at.startswith(inside):
            assert after[at] is layer or (
                after[at] == layer and isinstance(layer, layers.InputLayer)
            )
