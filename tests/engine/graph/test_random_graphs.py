"""Random graphs: closing against a recursive reference, equality, round trips, invariants."""

import json
import pickle

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fkeras as fk
from fkeras import layers

few = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


@st.composite
def recipes(draw):
    """Draws calls, each a layer and earlier tensors, and the tensors that are outputs."""
    count = draw(st.integers(1, 2))
    steps = []
    for number in range(draw(st.integers(1, 9))):
        available = count + number
        kind = draw(st.sampled_from(["dense", "shared", "add", "activation", "op", "dropout"]))
        sources = draw(st.lists(st.integers(0, available - 1), min_size=2, max_size=2))
        steps.append((kind, tuple(sources)))
    total = count + len(steps)
    outputs = draw(st.lists(st.integers(count, total - 1), min_size=1, max_size=2, unique=True))
    return count, tuple(steps), tuple(outputs)


def make(recipe):
    """The tensors of a recipe, and its model."""
    count, steps, outputs = recipe
    tensors = [fk.Input((3,), name=f"x{i}") for i in range(count)]
    inputs = list(tensors)
    shared = layers.Dense(3, name="shared")
    for kind, (a, b) in steps:
        if kind == "dense":
            tensors.append(layers.Dense(3)(tensors[a]))
        elif kind == "shared":
            tensors.append(shared(tensors[a]))
        elif kind == "add":
            tensors.append(layers.Add()([tensors[a], tensors[b]]))
        elif kind == "activation":
            tensors.append(layers.Activation("relu")(tensors[a]))
        elif kind == "dropout":
            tensors.append(layers.Dropout(0.5)(tensors[a], training=False))
        else:
            tensors.append(tensors[a] * 0.5 + tensors[b])
    return inputs, [tensors[o] for o in outputs]


def closed(recipe):
    inputs, outputs = make(recipe)
    return fk.Model(inputs, outputs)


def reference(inputs, outputs):
    """Node depths and layer order by plain recursion."""
    order, layer_seen = [], []

    def visit(node):
        if node in order:
            return
        if all(node.layer is not seen for seen in layer_seen):
            layer_seen.append(node.layer)
        for tensor in node.inputs:
            visit(tensor.node)
        if node not in order:
            order.append(node)

    for tensor in outputs:
        visit(tensor.node)
    needed_count = len(layer_seen)
    for tensor in inputs:
        visit(tensor.node)
    # Keras puts unused inputs before the layers of the outputs
    layer_seen = [*layer_seen[needed_count:], *layer_seen[:needed_count]]
    depths, layer_depths = {}, {}
    for node in reversed(order):
        depth = max(depths.get(node, 0), layer_depths.get(id(node.layer), 0))
        depths[node] = layer_depths[id(node.layer)] = depth
        for tensor in node.inputs:
            depths[tensor.node] = max(depth + 1, depths.get(tensor.node, 0))
    calls = sorted(order, key=lambda n: (-depths[n], order.index(n)))
    ranked = sorted(layer_seen, key=lambda l: -layer_depths[id(l)])
    return [(type(n.layer), depths[n]) for n in calls], [type(l) for l in ranked]


@pytest.mark.exhaustive
@few
@given(recipes())
def test_closing_equals_a_recursive_reference(recipe):
    inputs, outputs = make(recipe)
    model = fk.Model(inputs, outputs)
    calls, ranked = reference(inputs, outputs)
    graph = model.graph
    pairs = zip(graph.calls, graph.depths, strict=True)
    assert [(type(model.layers[c.layer]), d) for c, d in pairs] == calls
    assert [type(model.layers[name]) for name in graph.layers] == ranked


@pytest.mark.exhaustive
@few
@given(recipes())
def test_equal_builds_are_equal_and_hash_equal(recipe):
    first, second = closed(recipe), closed(recipe)
    assert first == second
    assert hash(first) == hash(second)
    assert first.graph == second.graph
    assert first.functional() == second


@pytest.mark.exhaustive
@few
@given(recipes())
def test_round_trips_are_exact(recipe):
    model = closed(recipe)
    text = json.dumps(model.get_config())
    restored = fk.Model.from_config(json.loads(text))
    assert restored == model
    assert json.dumps(restored.get_config()) == text
    assert pickle.loads(pickle.dumps(model)) == model


@few
@given(recipes())
def test_coordinates_and_depths(recipe):
    graph = closed(recipe).graph
    for name in graph.layers:
        for node in graph.layer(name).nodes:
            for i, tensor in enumerate(node.input_tensors):
                if not node.inbound_layers:
                    continue
                origin = graph.layer(node.inbound_layers[i]).nodes[node.node_indices[i]]
                assert origin.output_tensors[node.tensor_indices[i]] == tensor
    for number, call in enumerate(graph.calls):
        for slot in () if call.is_input else call.inputs:
            assert graph.depths[graph.producer(slot)[0]] > graph.depths[number]


@few
@given(recipes())
def test_opening_and_closing_again_gives_the_same_graph(recipe):
    model = closed(recipe)
    reclosed = fk.Model(model.inputs, model.outputs)
    assert reclosed == model


def test_a_random_graph_equals_its_layers_called_one_by_one():
    import jax

    recipe = (2, (("shared", (0, 0)), ("shared", (2, 2)), ("add", (3, 1)), ("op", (4, 2))), (5, 3))
    model = closed(recipe).build(jax.random.key(0))
    x0, x1 = np.ones((2, 3), "float32"), np.full((2, 3), 2.0, "float32")
    shared = model.layers["shared"]
    first = shared(x0)
    second = shared(first)
    expected = (second + x1) * 0.5 + first
    y, z = model([x0, x1])
    np.testing.assert_allclose(y, expected, rtol=1e-6)
    np.testing.assert_allclose(z, second, rtol=1e-6)


@st.composite
def repeated_recipes(draw):
    """Draws the steps of a block, the number of blocks, and which tensors a model returns.

    A source of a step is a tensor of the block before (0, 1), a tensor before all blocks (2, 3), or an
    earlier result of the block itself (4 and more).
    """
    steps = []
    for number in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["dense", "shared", "add", "op", "dropout", "norm", "nested"]))
        sources = draw(st.lists(st.integers(0, 3 + number), min_size=2, max_size=2))
        steps.append((kind, tuple(sources)))
    last = 3 + len(steps)
    passed_on = draw(st.lists(st.integers(0, last), min_size=2, max_size=2))
    kept_result = draw(st.none() | st.integers(4, last))
    return tuple(steps), tuple(passed_on), kept_result, draw(st.integers(2, 4))


def repeated(recipe):
    """The model of a recipe; its blocks are equal apart from names and weights."""
    steps, passed_on, kept_result, count = recipe
    outer = [fk.Input((3,), name="x0"), fk.Input((3,), name="x1")]
    shared = layers.Dense(3, name="shared")
    carried, results = list(outer), []
    for _ in range(count):
        tensors = [*carried, *outer]
        for kind, (a, b) in steps:
            if kind == "dense":
                tensors.append(layers.Dense(3, "tanh", activity_regularizer="l2")(tensors[a]))
            elif kind == "shared":
                tensors.append(shared(tensors[a]))
            elif kind == "add":
                tensors.append(layers.Add()([tensors[a], tensors[b]]))
            elif kind == "norm":
                tensors.append(layers.BatchNormalization()(tensors[a]))
            elif kind == "nested":
                inner = fk.Sequential([fk.Input((3,)), layers.Dense(3), layers.Dropout(0.5)])
                tensors.append(inner(tensors[a]))
            elif kind == "dropout":
                tensors.append(layers.Dropout(0.5)(tensors[a]))
            else:
                tensors.append(tensors[a] * 0.5 + tensors[b])
        carried = [tensors[index] for index in passed_on]
        if kept_result is not None:
            results.append(tensors[kept_result])
    return fk.Model(outer, [*carried, *results])


@pytest.mark.exhaustive
@few
@given(repeated_recipes())
def test_rolled_and_stacked_blocks_compute_what_single_calls_compute(recipe):
    import jax

    from fkeras.engine.network.stacking import Stacking
    from fkeras.transforms import roll

    key = jax.random.key(0)
    model = repeated(recipe).build(key)
    rolled, state = roll(model), model.init_state()
    x = [np.float32([[1, -2, 3], [0, 1, 2]]), np.float32([[2, 0, -1], [1, 1, 0]])]
    options = {"training": True, "key": key}
    stacking = Stacking(rolled, model)
    expected = model.apply(x, state=state, **options)
    out = rolled.apply(x, state=state, **options)
    stacked = stacking.stack(model).apply(x, state=stacking.stack_state(state), **options)
    assert jax.tree.structure(out) == jax.tree.structure(expected)
    updates = stacking.unstack_state(stacked.updates) if stacked.updates else {}
    stacked_result = (stacked.value, updates, stacked.losses)
    single_result = (expected.value, expected.updates, expected.losses)
    assert jax.tree.structure(stacked_result) == jax.tree.structure(single_result)
    for results in (
        zip(jax.tree.leaves(out), jax.tree.leaves(expected), strict=True),
        zip(jax.tree.leaves(stacked_result), jax.tree.leaves(single_result), strict=True),
    ):
        for a, b in results:
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)
