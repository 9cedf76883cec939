"""Nodes: one for each call, their fields, edges and tensor coordinates."""

import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.engine import Coord, Spec


def test_the_eleven_fields_of_a_node():
    ids = fk.Input((5,), dtype="int32", name="ids")
    words = layers.Embedding(9, 3, mask_zero=True, name="words")(ids)
    out = layers.LSTM(2, name="lstm")(words, training=False)
    node = fk.Model(ids, out).graph.layer("lstm").nodes[0]
    assert node.outbound_layer == "lstm"
    assert node.inbound_layers == ("words",)
    assert node.node_indices == (0,)
    assert node.tensor_indices == (0,)
    assert [t.coord for t in node.input_tensors] == [("words", 0, 0)]
    assert [t.coord for t in node.output_tensors] == [("lstm", 0, 0)]
    assert node.input_masks == (Spec(("b", 5), "bool"),)
    assert node.output_masks == (None,)
    assert node.input_shapes == ((None, 5, 3),)
    assert node.output_shapes == ((None, 2),)
    assert node.arguments == {"training": False}


def test_nodes_are_immutable():
    x = fk.Input((2,))
    with pytest.raises(AttributeError, match="Call the layer again"):
        x.node.layer = None
    with pytest.raises(AttributeError, match="cannot change"):
        x.index = 3


def test_consumers_count_every_edge():
    x = fk.Input((3,), name="x")
    y = layers.Dense(3, name="y")(x)
    graph = fk.Model(x, layers.Add(name="sum")([y, y])).graph
    assert graph.consumers("y") == ("sum_ib-0", "sum_ib-0")
    assert graph.consumers("x") == ("y_ib-0",)
    assert graph.consumers("sum") == ()
    assert graph.layer("sum").nodes[0].inbound_layers == ("y", "y")


def test_each_call_is_one_node():
    x = fk.Input((3,), name="x")
    layer, h = layers.Dense(3, name="d"), x
    for _ in range(4):
        h = layer(h)
    graph = fk.Model(x, h).graph
    assert len(graph.calls) == 5
    assert len(graph.layer("d").nodes) == 4
    assert graph.nodes == {"x_ib-0", "d_ib-0", "d_ib-1", "d_ib-2", "d_ib-3"}


def test_tensor_coordinates():
    a, b = fk.Input((5, 2), name="a"), fk.Input((5, 2), name="b")
    lstm = layers.LSTM(3, return_state=True, name="lstm")
    first, second = lstm(a), lstm(b)
    graph = fk.Model([a, b], [*first, *second]).graph
    coords = [graph.coords[slot] for slot in graph.output_slots]
    assert coords == [("lstm", n, t) for n in (0, 1) for t in (0, 1, 2)]
    assert isinstance(coords[0], Coord)
    assert [t.index for t in second] == [0, 1, 2]
    assert all(t.node is second[0].node for t in second)
    assert graph.coords[graph.slot("lstm", 1, 2)] == ("lstm", 1, 2)
    with pytest.raises(ValueError, match="asked for output 3, but the call has 3 outputs"):
        graph.slot("lstm", 1, 3)


def test_a_model_called_twice_on_one_tensor_has_two_coordinates():
    x = fk.Input((3,), name="x")
    model = fk.Model(x, layers.Dense(2)(x), name="inner")
    y = fk.Input((3,), name="y")
    first, second = model(y), model(y)
    assert first is not second
    assert first.node is not second.node
    graph = fk.Model(y, [first, second]).graph
    assert [graph.coords[s] for s in graph.output_slots] == [("inner", 0, 0), ("inner", 1, 0)]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("seed", range(12))
def test_inputs_of_a_node_are_outputs_of_their_origin(seed):
    rng = np.random.default_rng(seed)
    tensors = [fk.Input((3,), name="x")]
    lstm = layers.LSTM(3, return_state=True, name="rnn")
    for _ in range(10):
        a, b = (tensors[i] for i in rng.integers(len(tensors), size=2))
        kind = rng.integers(4)
        if kind == 0:
            tensors.append(layers.Dense(3)(a))
        elif kind == 1:
            tensors.append(layers.Add()([a, b]))
        elif kind == 2:
            tensors.extend(lstm(layers.RepeatVector(2)(a)))
        else:
            tensors.append(a * b)
    graph = fk.Model(tensors[0], tensors[-2:]).graph
    edges = 0
    for name in graph.layers:
        for view in graph.layer(name).nodes:
            triples = zip(view.inbound_layers, view.node_indices, view.tensor_indices, strict=True)
            for (layer, node, index), tensor in zip(triples, view.input_tensors, strict=False):
                origin = graph.layer(layer).nodes[node]
                assert origin.output_tensors[index] == tensor
                assert tensor.coord == (layer, node, index)
                edges += 1
    assert edges == sum(len(call.inputs) for call in graph.calls if not call.is_input)
    assert edges > 0


def test_an_input_node_has_no_inputs():
    x = fk.Input((3,), name="x")
    graph = fk.Model(x, layers.Dense(2)(x)).graph
    node = graph.layer("x").nodes[0]
    assert node.inbound_layers == node.node_indices == node.tensor_indices == ()
    assert node.input_tensors == node.output_tensors
    assert graph.calls[0].is_input
    assert not graph.calls[1].is_input


def test_node_keys():
    x = fk.Input((3,), name="x")
    shared = layers.Dense(3, name="sh")
    graph = fk.Model(x, shared(shared(x))).graph
    assert [graph.node_key(n) for n in range(3)] == ["x_ib-0", "sh_ib-0", "sh_ib-1"]
