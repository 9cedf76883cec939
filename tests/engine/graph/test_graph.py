"""Closed graphs: inputs and outputs, depths, order, disconnected graphs."""

import contextlib
import gc
import io
import json
import os
import pathlib
import subprocess
import sys
import time
import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.engine import Node, Spec, close
from fkeras.engine.call.signature import Signature, input_signature
from fkeras.engine.symbolic.input import InputLayer
from fkeras.engine.symbolic.operators import KerasTensor
from fkeras.engine.values.structure import Branch, Ref
from tests.support.compile_counts import count_compiles
from tests.support.paths import ROOT


def shared_lstm():
    """Two streams through one LSTM."""
    a, b = fk.Input((28, 25), name="a"), fk.Input((28, 25), name="b")
    shared = layers.LSTM(32, name="lstm")
    return fk.Model([a, b], layers.concatenate([shared(a), shared(b)]))


def diamond():
    x = fk.Input((4,), name="x")
    b = layers.Dense(4, name="b")(x)
    a = layers.Dense(4, name="a")(b)
    c = layers.Dense(4, name="c")(x)
    return fk.Model(x, layers.Add(name="s")([a, c]))


def chain(depth, units=4):
    x = h = fk.Input((units,), name="x")
    for _ in range(depth):
        h = layers.Dense(units)(h)
    return x, h


def test_a_jnp_function_on_a_symbolic_tensor_names_the_remedy():
    x = fk.Input((3,), name="pixels")
    with pytest.raises(fk.SymbolicValueError) as error:
        jnp.sin(x)
    for word in ("fk.ops", "lift", "pixels"):
        assert word in str(error.value)
    with pytest.raises(fk.SymbolicValueError, match="pixels"):
        np.sin(x)


@pytest.mark.exhaustive
def test_a_foreign_array_does_not_disconnect_the_graph():
    x = fk.Input((3,), name="x")
    for y in (x + jnp.ones((1, 3)), np.ones((1, 3), "float32") + x):
        assert fk.Model(x, y)(np.zeros((2, 3), "float32")).tolist() == [[1.0] * 3] * 2
    with pytest.raises(TypeError, match="expected symbolic tensors as outputs, received"):
        fk.Model(x, jnp.ones((2, 3)))


class Mix(fk.Layer):
    """The sum of all arrays in any nesting."""

    def call(self, *trees):
        return sum(jax.tree.leaves(trees))


@pytest.mark.exhaustive
def test_inputs_may_be_any_pytree():
    a, b = fk.Input((3,), name="a"), fk.Input((3,), name="b")
    x, y = np.ones((2, 3), "float32"), np.full((2, 3), 2, "float32")
    trees = [
        (([a, b],), 3.0),
        (((a, b),), 3.0),
        (({"left": a, "right": b},), 3.0),
        (({"left": [a, (b, a)]}, b), 6.0),
    ]
    for args, expected in trees:
        model = fk.Model([a, b], Mix(name="mix")(*args))
        np.testing.assert_allclose(model([x, y]), expected)
        edges = model.graph.layer("mix").nodes[0].inbound_layers
        assert sorted(set(edges)) == ["a", "b"]
        config = json.loads(json.dumps(model.get_config()))
        assert fk.Model.from_config(config, {"Mix": Mix}) == model


def test_outputs_may_be_any_pytree():
    x = fk.Input((3,), name="x")
    y = layers.Dense(2, name="y")(x)
    model = fk.Model({"x": x}, {"head": y, "more": [x, (y,)]}).build(jax.random.key(0))
    out = model({"x": np.ones((2, 3), "float32")})
    assert jax.tree.map(lambda v: v.shape, out) == {"head": (2, 2), "more": [(2, 3), ((2, 2),)]}


def test_two_streams_through_one_lstm():
    model = shared_lstm()
    view = model.graph.layer("lstm")
    assert len(view.nodes) == 2
    assert model.build(jax.random.key(0)).count_params() == 7424
    assert view.input_shape == (None, 28, 25)
    assert view.output_shape == (None, 32)
    assert view.get_output_at(0).coord == ("lstm", 0, 0)
    assert view.get_output_at(1).coord == ("lstm", 1, 0)
    with pytest.raises(ValueError, match=r"called 2 times .* get_output_at"):
        _ = view.output
    with pytest.raises(ValueError, match="asked for the output of call 2, but the layer has 2"):
        view.get_output_at(2)
    with pytest.raises(ValueError, match="call -1"):
        view.get_output_at(-1)


@pytest.mark.exhaustive
def test_the_gradient_is_the_sum_over_both_uses():
    a, b = fk.Input((3, 2)), fk.Input((3, 2))
    lstm = layers.LSTM(4, name="lstm")
    model = fk.Model([a, b], layers.Add()([lstm(a), lstm(b)])).build(jax.random.key(1))
    x, y = jax.random.normal(jax.random.key(2), (2, 5, 3, 2))

    def branches(one, two):
        return jnp.sum(jnp.square(one(x) + two(y)))

    model_gradient = jax.jit(jax.grad(lambda m: jnp.sum(jnp.square(m([x, y])))))(model)
    shared_layer = model.layers["lstm"]
    branch_gradients = jax.jit(jax.grad(branches, argnums=(0, 1)))(shared_layer, shared_layer)
    summed = jax.tree.map(lambda p, q: p + q, *branch_gradients)
    gradients, expected = jax.tree.leaves(model_gradient), jax.tree.leaves(summed)
    assert len(gradients) == len(expected) == 3
    for one, other in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_ancestors_descendants_and_paths():
    graph = diamond().graph
    assert graph.ancestors("a") == ("x_ib-0", "b_ib-0")
    assert set(graph.ancestors("s")) == {"x_ib-0", "b_ib-0", "a_ib-0", "c_ib-0"}
    assert graph.ancestors("x") == ()
    assert graph.descendants("b") == ("a_ib-0", "s_ib-0")
    assert set(graph.descendants("x")) == {"a_ib-0", "b_ib-0", "c_ib-0", "s_ib-0"}
    assert graph.path("x", "s") == ("x_ib-0", "c_ib-0", "s_ib-0")
    assert graph.path("b", "s") == ("b_ib-0", "a_ib-0", "s_ib-0")
    assert graph.path("c", "a") == ()
    with pytest.raises(ValueError, match="no layer 'z'"):
        graph.ancestors("z")


@pytest.mark.exhaustive
def test_symbolic_initial_states_are_edges():
    x, h, c = fk.Input((4, 2), name="x"), fk.Input((3,), name="h"), fk.Input((3,), name="c")
    out = layers.LSTM(3, name="lstm")(x, initial_state=[h, c])
    model = fk.Model([x, h, c], out).build(jax.random.key(0))
    node = model.graph.layer("lstm").nodes[0]
    assert node.inbound_layers == ("x", "h", "c")
    assert [t.coord for t in node.input_tensors] == [("x", 0, 0), ("h", 0, 0), ("c", 0, 0)]
    xs, hs = jnp.ones((2, 4, 2)), jnp.full((2, 3), 0.5)
    expected = model.layers["lstm"].apply(xs, initial_state=[hs, 2 * hs]).value
    np.testing.assert_allclose(model([xs, hs, 2 * hs]), expected, rtol=1e-6)
    assert not np.allclose(model([xs, 0 * hs, 0 * hs]), expected)
    config = json.loads(json.dumps(model.get_config()))
    assert fk.Model.from_config(config).graph == model.graph


@pytest.mark.exhaustive
def test_an_initial_state_may_mix_tensors_and_arrays():
    x, h = fk.Input((4, 2), 1, name="x"), fk.Input((3,), 1, name="h")
    out = layers.LSTM(3, name="lstm")(x, initial_state=[h, np.ones((1, 3), "float32")])
    model = fk.Model([x, h], out).build(jax.random.key(0))
    assert model.graph.layer("lstm").nodes[0].inbound_layers == ("x", "h")
    xs, hs = jnp.ones((1, 4, 2)), jnp.zeros((1, 3))
    expected = model.layers["lstm"].apply(xs, initial_state=[hs, hs + 1]).value
    np.testing.assert_allclose(model([xs, hs]), expected, rtol=1e-6)


def test_a_model_imports_no_optimizer():
    sources = [*ROOT.glob("fkeras/engine/**/*.py"), *ROOT.glob("fkeras/layers/**/*.py")]
    assert len(sources) > 40
    for path in sources:
        text = path.read_text()
        assert "import optax" not in text, path
        assert "from fkeras.training" not in text, path
        assert "from fkeras.optimizers" not in text, path
    model = diamond()
    assert isinstance(model, fk.Layer)
    assert isinstance(model.graph, fk.Graph)


def test_calls_and_depths_of_a_diamond():
    graph = diamond().graph
    assert graph.nodes == {f"{n}_ib-0" for n in "xabcs"}
    assert graph.nodes_by_depth == {
        0: ("s_ib-0",),
        1: ("a_ib-0", "c_ib-0"),
        2: ("b_ib-0",),
        3: ("x_ib-0",),
    }
    assert graph.layers == ("x", "b", "a", "c", "s")
    assert graph.layers_by_depth == {0: ("s",), 1: ("a", "c"), 2: ("b",), 3: ("x",)}


def test_calls_and_depths_of_a_shared_layer():
    x = fk.Input((3,), name="x")
    shared = layers.Dense(3, name="sh")
    graph = fk.Model(x, layers.Dense(3, name="top")(shared(shared(x)))).graph
    assert graph.nodes == {"x_ib-0", "sh_ib-0", "sh_ib-1", "top_ib-0"}
    assert graph.layers == ("x", "sh", "top")
    assert graph.layers_by_depth == {0: ("top",), 2: ("sh",), 3: ("x",)}
    assert graph.node_indices == (0, 0, 1, 0)


@pytest.mark.exhaustive
def test_a_chain_of_20_000_nodes_closes_without_recursion():
    depth, spec = 20_000, Spec(("b", 2))
    layer = layers.Dense(2, name="d")
    source = InputLayer((2,), name="x")
    x = tensor = KerasTensor(Node(source, input_signature(spec)), 0)
    args, options = Branch("tuple", (), (Ref(0),)), Branch("dict", (), ())
    signature = Signature(args, options, None, "strict", Ref(0), (spec,), (None,))
    for _ in range(depth):
        tensor = KerasTensor(Node(layer, signature, (tensor,)), 0)
    graph, closed_layers = close(x, tensor)
    assert len(graph.calls) == depth + 1
    assert list(closed_layers) == ["x", "d"]
    assert graph.depths[:2] == (depth, depth - 1)
    assert graph.coords[graph.output_slots[0]] == ("d", depth - 1, 0)
    assert len(graph.ancestors("d", depth - 1)) == depth


def test_calls_outside_the_graph_leave_no_trace():
    a, b, c = (fk.Input((2,), name=n) for n in "abc")
    shared = layers.Dense(2, name="shared")
    shared(a)
    second = shared(b)
    shared(c)
    graph = fk.Model(b, second).graph
    assert graph.layers == ("b", "shared")
    assert len(graph.layer("shared").nodes) == 1
    fresh = fk.Input((2,), name="b")
    assert graph == fk.Model(fresh, layers.Dense(2, name="shared")(fresh)).graph


def test_depths_of_nodes():
    graph = diamond().graph
    assert {call.layer: d for call, d in zip(graph.calls, graph.depths, strict=True)} == {
        "s": 0,
        "a": 1,
        "c": 1,
        "b": 2,
        "x": 3,
    }


def test_every_consumer_has_a_smaller_depth():
    x = fk.Input((3,), name="x")
    shared, tensors = layers.Dense(3, name="sh"), [x]
    for i in range(12):
        tensors.append(shared(tensors[-1]) if i % 3 else tensors[-1] + tensors[i // 2])
    graph = fk.Model(x, tensors[-1]).graph
    seen = 0
    for number, call in enumerate(graph.calls):
        for slot in () if call.is_input else call.inputs:
            producer = graph.producer(slot)[0]
            assert graph.depths[producer] > graph.depths[number]
            assert producer < number
            seen += 1
    assert seen == 16


def test_the_order_of_layers():
    model = diamond()
    assert list(model.layers) == ["x", "b", "a", "c", "s"]
    assert diamond() == model


ORDER = """
import fkeras as fk
from fkeras import layers
x = fk.Input((2,))
tensors = [x]
for i in range(8):
    tensors.append(layers.Dense(2)(tensors[i // 2]))
    tensors.append(layers.Add()([tensors[-1], tensors[i]]))
graph = fk.Model(x, tensors[-3:]).graph
print(graph.layers, graph.nodes_by_depth)
"""


@pytest.mark.exhaustive
def test_the_order_of_layers_does_not_depend_on_hashes():
    # a second process has another hash seed
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    process = subprocess.run(
        [sys.executable, "-c", ORDER], env=env, capture_output=True, text=True, check=True
    )
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(ORDER, {})
    assert output.getvalue() == process.stdout
    assert "dense_5" in process.stdout


def test_a_disconnected_graph_names_the_reached_layers():
    i1, i2 = fk.Input((2,), name="i1"), fk.Input((2,), name="i2")
    h2 = layers.Dense(2, name="h2")(layers.Dense(2, name="h1")(i1))
    out = layers.Concatenate(name="join")([h2, i2])
    with pytest.raises(fk.DisconnectedGraphError) as error:
        fk.Model(i1, out, name="broken")
    text = str(error.value)
    for word in ("broken", "disconnected", "'i2'", "(b, 2)", "'join'", "'i1'", "'h1'", "'h2'"):
        assert word in text
    assert f"{pathlib.Path(__file__).name}:" in text
    assert error.value.layer == "i2"


def test_an_output_that_no_input_reaches_is_an_error():
    x, y = fk.Input((2,), name="x"), fk.Input((2,), name="y")
    with pytest.raises(fk.DisconnectedGraphError, match="'y'"):
        fk.Model(x, [layers.Dense(2)(x), layers.Dense(2)(y)])
    with pytest.raises(
        fk.DisconnectedGraphError,
        match="is an fk.Input that is not among the inputs. Inputs come first",
    ):
        fk.Model(x, y)


@pytest.mark.exhaustive
def test_a_chain_of_5_000_layers_closes_in_2_seconds():
    x, h = chain(5000)
    start = time.process_time()
    model = fk.Model(x, h)
    assert time.process_time() - start < 2
    assert len(model.layers) == 5001
    assert model.graph.layers[-1] == "dense_4999"
    assert model.graph.depths[0] == 5000
    assert hash(model) == hash(model.replace())


@pytest.mark.exhaustive
def test_discarded_calls_leave_memory_flat():
    gc.freeze()  # objects of other tests need no traversal
    x, layer = fk.Input((4,)), layers.Dense(4)
    before_hash = hash(layer)
    for _ in range(100):
        layer(x)
    gc.collect()
    tracemalloc.start()
    try:
        start_size = tracemalloc.get_traced_memory()[0]
        for _ in range(2_000):
            layer(x)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - start_size
    finally:
        tracemalloc.stop()
    assert grown < 20_000
    assert hash(layer) == before_hash
    assert not [o for o in gc.get_referrers(layer) if isinstance(o, Node)]


@pytest.mark.exhaustive
def test_building_a_graph_of_1_000_layers_compiles_nothing():
    with count_compiles() as compiles:
        x, h = chain(1000)
        model = fk.Model(x, h)
    assert len(model.layers) == 1001
    assert len(compiles) == 0


def test_an_axis_of_data_dependent_size_has_a_new_name():
    def shorten(a):
        if not isinstance(a.shape[1], int):
            raise TypeError("needs a number")
        return a[:, 1:]

    x = fk.Input((None,))
    short = fk.ops.lift(shorten)(x)
    assert (x.spec.dims, short.spec.dims) == (("b", "d1"), ("b", "d1_2"))
    assert fk.ops.lift(shorten)(short).spec.dims == ("b", "d1_3")
    assert fk.ops.lift(lambda a: shorten(a)[:, :0])(x).spec.dims == ("b", 0)
    unchanged = fk.ops.lift(lambda a: shorten(jnp.pad(a, ((0, 0), (1, 0)))))(x)
    assert unchanged.spec.dims == ("b", "d1"), "an axis that keeps its size keeps its word"


def test_the_inputs_of_a_model_stand_for_the_inputs_it_was_made_from():
    a, b = fk.Input((3,), name="left"), fk.Input((2,))
    body = layers.Dense(4, name="body")
    h = body(a)
    model = fk.Model({"y": b, "x": a}, layers.Concatenate()([h, b]))
    head = layers.Dense(1, name="head")
    branched = fk.Model(model.inputs, head(h))
    assert branched.input_names == model.input_names
    built = branched.build(jax.random.key(0))
    expected = fk.Model({"y": b, "x": a}, head(h)).build(jax.random.key(0))
    x = {"x": np.ones((2, 3), "float32"), "y": np.ones((2, 2), "float32")}
    np.testing.assert_array_equal(built(x), expected(x))
    # tensors of the model and of its history
    both = fk.Model(model.inputs, [model.tensor("concatenate"), layers.ReLU()(a)])
    assert both.build(jax.random.key(0))(x)[1].shape == (2, 3)
    again = fk.Model(branched.inputs, layers.ReLU()(h))
    assert again.build(jax.random.key(0))(x).shape == (2, 4)
    sequential = fk.Sequential([a, body])
    assert fk.Model(sequential.inputs, head(h)).output_names == ("head",)
    with pytest.raises(ValueError, match="given twice"):
        fk.Model([model.inputs["x"], a, b], h)
    # the layers of a built model hold weights, which the recorded layers lack
    for changed in (model.build(jax.random.key(0)), model.replace(name="other")):
        with pytest.raises(fk.DisconnectedGraphError, match="of a built or changed model"):
            fk.Model(changed.inputs, head(h))
    assert fk.Model(model.inputs, head(h)) == branched
