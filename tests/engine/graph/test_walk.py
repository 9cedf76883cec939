"""The interpreter of graphs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.engine.graph.walk import crossing, new_slots, open_graph, run_calls, segment


def graph_and_layers():
    x, y = fk.Input((3,), name="x"), fk.Input((3,), name="y")
    dense = layers.Dense(3, name="dense")
    z = layers.Add(name="add")([dense(x), y])
    model = fk.Model({"x": x, "y": y}, [dense(z), z]).build(jax.random.key(0))
    return model.graph, model


def test_values_follow_the_slots():
    graph, _ = graph_and_layers()
    slots = new_slots(graph, graph.input_names)
    value = run_calls(
        graph, slots, lambda _, call: f"{call.layer}({', '.join(slots[s] for s in call.inputs)})"
    )
    assert value == ["dense(add(dense(x), y))", "add(dense(x), y)"]


def test_a_call_without_a_value_leaves_its_slots():
    graph, _ = graph_and_layers()
    slots = new_slots(graph, graph.input_names)
    assert run_calls(graph, slots, lambda number, call: None) == [None, None]


@pytest.mark.exhaustive
def test_a_recorded_graph_opens_and_closes_to_itself():
    graph, model = graph_and_layers()
    tensors = open_graph(graph, model.layers, {})
    inputs = {graph.coords[slot].layer: tensors[slot] for slot in graph.input_slots}
    reclosed = fk.Model(inputs, [tensors[slot] for slot in graph.output_slots])
    assert reclosed.graph == graph


@pytest.mark.exhaustive
def test_segments_compute_the_whole():
    graph, model = graph_and_layers()
    first, *remaining = graph.run_order
    segments = [
        model.replace(graph=segment(graph, [first], first=True, last=False)),
        model.replace(graph=segment(graph, remaining, first=False, last=True)),
    ]
    x = {"x": jnp.ones((1, 3)), "y": jnp.full((1, 3), 2.0)}
    crossing_values = segments[0](x)
    assert len(crossing_values) == len(crossing(graph, 1)) == 2
    for expected, value in zip(model(x), segments[1](crossing_values), strict=True):
        np.testing.assert_allclose(expected, value, rtol=1e-6)
