"""Calls of layers: checks of the inputs, building, recording."""

import ast
import gc
import pathlib
import random

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import sparse

import fkeras as fk
from fkeras import layers, ops
from fkeras.engine.values.spec import as_spec
from tests.support.engine_layers import Affine, Checked, Tally

KEY = jax.random.key(5)
X = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")


def test_a_wrong_name_in_the_state_is_an_error():
    norm = layers.BatchNormalization(name="norm")
    model = fk.Sequential([fk.Input((4,)), norm, layers.Dense(2)], name="model").build(KEY)
    state = model.init_state()
    message = "'model' .*: expected the state of the layers 'norm', received entries for 'nrm'"
    with pytest.raises(fk.FKerasError, match=message):
        model.apply(X, state={"nrm": state["norm"]})
    with pytest.raises(fk.FKerasError, match=message):
        fk.Sequential([fk.Input((4,)), model]).apply(X, state={"model": {"nrm": state["norm"]}})
    # a part of a model may receive the state of the whole model
    assert model.apply(X, state={**state, "other": {}}).value.shape == (8, 2)


@pytest.mark.exhaustive
def test_a_subclass_with_three_methods_trains():
    class SimpleDense(fk.Layer):
        units: int = fk.option(default=1)
        kernel: jax.Array | None = fk.weight(initializer=fk.initializers.GlorotUniform())

        @property
        def input_spec(self):
            return fk.InputSpec(min_ndim=2)

        def build(self, key, x):
            return self.with_weights(key, kernel=(x.shape[-1], self.units))

        def call(self, x):
            return x @ self.kernel

    model = fk.Sequential([fk.Input((4,)), SimpleDense(1)])
    trainer = fk.Trainer(fk.optimizers.SGD(0.1), "mse")
    run = start = trainer.init(model, KEY)
    step = jax.jit(trainer.step)
    target = X @ np.array([[1.0], [-2.0], [0.5], [0.0]], "float32")
    losses = []
    for _ in range(30):
        run, logs = step(run, (X, target))
        losses.append(float(logs["loss"]))
    assert losses[-1] < 0.05 * losses[0]
    assert run.model != start.model


def test_a_layer_without_call_names_the_method_to_write():
    class Empty(fk.Layer):
        pass

    with pytest.raises(NotImplementedError, match=r"Empty.*def call\(self, x\)"):
        Empty()(X)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", range(8))
def test_a_call_extends_the_graph_and_changes_no_value(seed):
    draw = random.Random(seed)
    x = fk.Input((4,), name="x")
    tensors = [x]
    pool = [layers.Dense(4), ops.tanh, layers.Add(), layers.Concatenate(), layers.Dense(4, "relu")]
    for _ in range(draw.randint(3, 9)):
        layer = draw.choice(pool)
        vectors = [t for t in tensors if t.shape == (None, 4)]
        graph = fk.Model(x, list(tensors)).graph
        digest, copy = hash(graph), fk.Model(x, list(tensors)).graph
        if isinstance(layer, layers.Add | layers.Concatenate):
            inputs = [draw.choice(vectors), draw.choice(vectors)]
            y = layer(inputs)
            inputs.clear()  # the node must not hold the caller's list
            assert len(y.node.inputs) == 2
        else:
            y = layer(draw.choice(vectors))
        extended_graph = fk.Model(x, [*tensors, y]).graph
        assert (hash(graph), graph) == (digest, copy)
        assert len(extended_graph.calls) == len(graph.calls) + 1
        assert len(extended_graph.nodes - graph.nodes) == 1
        tensors.append(y)


def test_weights_of_one_call_fix_the_sizes_of_the_others():
    a, b, c = fk.Input((16,)), fk.Input((16,)), fk.Input((8,))
    dense = layers.Dense(3, name="dense_1")
    outputs = [dense(a), dense(b), dense(c)]
    assert fk.Model([a, b], outputs[:2]).graph.layer("dense_1").output_shape == (None, 3)
    with pytest.raises(
        fk.InputSpecError,
        match=r"'dense_1' \(Dense\), call 2: .*size 16, received \(b, 8\).*another",
    ) as raised:
        fk.Model([a, b, c], outputs)
    assert raised.value.node == 2
    built = dense.build(KEY, (None, 16))
    assert built(a).shape == (None, 3)
    with pytest.raises(fk.InputSpecError, match=r"'dense_1' \(Dense\).*size 16, received \(b, 8\)"):
        built(c)


@pytest.mark.exhaustive
def test_sizes_are_fixed_without_an_input_spec_too():
    a, b = fk.Input((16,)), fk.Input((8,))
    affine = Affine(3, name="affine")
    outputs = [affine(a), affine(b)]
    with pytest.raises(TypeError) as raised:
        fk.Model([a, b], outputs)
    assert any("'affine' (Affine)" in note for note in raised.value.__notes__)
    times = fk.Input((None, 2)), fk.Input((5, 2))
    lstm = layers.LSTM(3)
    model = fk.Model(list(times), [lstm(t) for t in times]).build(KEY)
    assert model.count_params() == 4 * (2 * 3 + 3 * 3 + 3), "another length is no other width"


@pytest.mark.parametrize(
    "make", [lambda: layers.Dense(2), lambda: fk.Sequential([layers.Dense(2)])]
)
def test_a_layer_without_input_shape_cannot_be_built(make):
    with pytest.raises(
        fk.FKerasError, match=r"build needs .*build\(jax\.random\.key\(0\), \(None, 8\)\)"
    ):
        make().build(KEY)


def test_weights_need_known_sizes():
    with pytest.raises(
        ValueError, match=r"'kernel' needs known sizes, received the shape \(None, 2\)"
    ):
        layers.Dense(2).build(KEY, (None, None))
    with pytest.raises(fk.FKerasError, match="init_state needs"):
        fk.Sequential([layers.BatchNormalization()]).init_state()
    with pytest.raises(fk.FKerasError, match="init_state needs the shape of every input"):
        layers.BatchNormalization().init_state()


def test_build_is_a_pure_function_of_key_and_shape():
    layer = layers.Dense(3)
    shapes = [jax.eval_shape(lambda k: layer.build(k, (None, 4)), KEY) for _ in range(2)]
    assert jax.tree.leaves(shapes[0]) == jax.tree.leaves(shapes[1])
    assert jax.tree.structure(shapes[0]) == jax.tree.structure(shapes[1])
    np.random.seed(0)
    random_states = np.random.get_state()[1].tolist(), random.getstate()
    first, second = layer.build(KEY, (None, 4)), layer.build(KEY, (None, 4))
    assert first == second
    assert (np.random.get_state()[1].tolist(), random.getstate()) == random_states
    assert layer.build(jax.random.key(6), (None, 4)) != first
    with pytest.raises(TypeError, match="build expected a typed PRNG key, received int"):
        layer.build(0, (None, 4))


def test_an_array_among_tensors_is_a_constant():
    x = fk.Input((4,), name="x")
    constant = np.arange(4, dtype="float32").reshape(1, 4)
    y = ops.add(x, constant)
    constant[:] = 100.0  # the constant must not share the caller's array
    model = fk.Model(x, y)
    np.testing.assert_array_equal(model(X), X + np.arange(4, dtype="float32")[None])
    assert model.graph.layer("add").input.coord == ("x", 0, 0)
    restored = fk.Model.from_config(model.get_config())
    assert restored == model
    with pytest.raises(fk.FKerasError, match="a traced array"):
        jax.jit(lambda c: fk.Model(x, ops.add(x, c))(X))(constant)
    with pytest.raises(TypeError, match="expected arrays or symbolic tensors, received str"):
        layers.Dense(2)("x")


@pytest.mark.exhaustive
def test_sparse_arrays_are_no_pair_of_arrays():
    matrix = sparse.BCOO.fromdense(X[:, :3])
    for call in (
        lambda: layers.Dense(2).build(KEY, (None, 3))(matrix),
        lambda: layers.Add()(matrix),
        lambda: layers.Add()([X, matrix]),
    ):
        with pytest.raises(TypeError, match=r"received BCOO. Convert it: x\.todense\(\)"):
            call()


WRONG = [
    (
        (fk.InputSpec(), fk.InputSpec()),
        [fk.Input((4,))],
        r"'picky' \(Checked\): expected 2 inputs, received 1: \(b, 4\)",
        None,
    ),
    (fk.InputSpec(ndim=3), [fk.Input((4,))], "expected ndim=3, received ndim=2", 0),
    (fk.InputSpec(max_ndim=2), [fk.Input((3, 4))], "expected max_ndim=2, received ndim=3", 0),
    (
        fk.InputSpec(min_ndim=3),
        [fk.Input((4,))],
        r"min_ndim=3, received ndim=2.*(x\[None\]|fk\.Input)",
        0,
    ),
    (
        fk.InputSpec(dtype="int32"),
        [fk.Input((4,))],
        "dtype=int32, received dtype=float32.*astype",
        0,
    ),
    (fk.InputSpec(axes={-1: 5}), [fk.Input((4,))], r"axis -1 of size 5, received \(b, 4\)", 0),
    (fk.InputSpec(shape=(None, 7)), [fk.Input((4,))], r"shape=\(None, 7\), received \(b, 4\)", 0),
    (
        (fk.InputSpec(), fk.InputSpec(ndim=3)),
        [fk.Input((4,)), fk.Input((4,))],
        r"'picky' \(Checked\), input 1: expected ndim=3",
        1,
    ),
]
NAMES = ["count", "ndim", "max_ndim", "min_ndim", "dtype", "axes", "shape", "second_input"]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("spec", "inputs", "message", "index"), WRONG, ids=NAMES)
def test_an_input_that_does_not_match_the_input_spec(spec, inputs, message, index):
    layer = Checked(spec, name="picky")
    arrays = [np.zeros([2 if d is None else d for d in x.shape], x.dtype) for x in inputs]
    for tensors in (inputs, arrays):
        with pytest.raises(fk.FKerasError, match=message.replace(r"\(b,", r"\((b|2),")) as raised:
            layer(*tensors)
        assert isinstance(raised.value, ValueError)
        assert isinstance(raised.value, fk.InputSpecError)
        assert raised.value.layer == "'picky' (Checked)"
        assert raised.value.input_index == index
        assert raised.value.node is None


@pytest.mark.parametrize(
    ("spec", "shape"),
    [
        (fk.InputSpec(axes={-1: 5}), (3, None)),
        (fk.InputSpec(axes={-1: None}), (3, 4)),
        (fk.InputSpec(shape=(9, None)), (4,)),
        (fk.InputSpec(shape=(None, 7)), (None,)),
        (fk.InputSpec(ndim=2, dtype="float32"), (4,)),
    ],
    ids=["unknown_axis", "any_axis", "shape_both_ways", "unknown_shape", "exact"],
)
def test_unknown_sizes_match_every_input_spec(spec, shape):
    x = fk.Input(shape)
    assert Checked(spec)(x).shape == x.shape


def test_a_known_batch_size_must_match_the_input_spec():
    with pytest.raises(fk.InputSpecError, match=r"shape=\(9, None\), received \(8, 4\)"):
        Checked(fk.InputSpec(shape=(9, None)))(X)


def test_is_symbolic_is_true_for_symbolic_tensors_only():
    is_symbolic = fk.engine.is_symbolic
    x = fk.Input((4,))
    assert is_symbolic(x)
    assert isinstance(x, fk.KerasTensor)
    concrete_values = [
        X,
        jnp.ones(2),
        jax.ShapeDtypeStruct((2,), "float32"),
        1.0,
        None,
        "x",
        [x],
        x.node,
    ]
    assert not any(is_symbolic(value) for value in concrete_values)
    seen = []
    jax.jit(lambda tracer: seen.append(is_symbolic(tracer)) or tracer)(X)
    assert seen == [False]


def test_the_package_has_no_class_variable():
    for path in pathlib.Path(fk.__file__).parent.rglob("*.py"):
        text = path.read_text()
        # parsing is slow: only files that contain the word
        for node in ast.walk(ast.parse(text)) if "Variable" in text else ():
            assert not (isinstance(node, ast.ClassDef) and node.name.endswith("Variable")), path
    built = layers.Dense(2).build(KEY, (None, 4))
    assert all(type(w) is type(jnp.ones(1)) for w in jax.tree.leaves(built))
    with pytest.raises(AttributeError, match=r"jax\.tree\.leaves"):
        built.variables  # noqa: B018
    with pytest.raises(AttributeError, match=r"'kernel' cannot be set.*replace\(kernel="):
        built.kernel = jnp.zeros((4, 2))


SHAPED = [
    (lambda d: layers.Dense(d.randint(1, 5)), 2),
    (lambda d: layers.LSTM(d.randint(1, 4), return_sequences=d.random() < 0.5), 3),
    (lambda d: layers.Conv1D(2, d.randint(1, 3), strides=d.randint(1, 2), padding="same"), 3),
    (lambda d: layers.MaxPooling1D(d.randint(1, 3), padding="same"), 3),
    (lambda d: layers.BatchNormalization(), 3),
    (lambda d: layers.UpSampling1D(d.randint(1, 3)), 3),
    (lambda d: layers.ZeroPadding1D(d.randint(0, 3)), 3),
    (lambda d: layers.GlobalMaxPooling1D(keepdims=d.random() < 0.5), 3),
    (lambda d: layers.Permute((2, 1)), 3),
    (lambda d: layers.RepeatVector(d.randint(1, 4)), 2),
]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("make", "ndim"), SHAPED, ids=lambda v: "")
def test_inferred_shapes_equal_the_shapes_of_arrays(make, ndim):
    draw = random.Random(ndim)
    for _ in range(20):
        layer = make(draw)
        sizes = tuple(draw.randint(3, 9) for _ in range(ndim))
        unknown = [None, *(s if draw.random() < 0.5 else None for s in sizes[1:-1]), sizes[-1]]
        if isinstance(layer, layers.RepeatVector | layers.Permute):
            unknown = [None, *sizes[1:]]
        inferred_shape = layer(fk.Input(batch_shape=unknown)).shape
        struct = jax.ShapeDtypeStruct(sizes, "float32")
        built = jax.eval_shape(lambda k: layer.build(k, sizes), KEY)  # noqa: B023
        state = layer.state_spec(sizes)
        out = jax.eval_shape(lambda m, s, x: m.apply(x, state=s).value, built, state, struct)
        assert len(inferred_shape) == len(out.shape)
        assert inferred_shape[0] is None
        assert all(f is None or f == o for f, o in zip(inferred_shape, out.shape, strict=True)), (
            inferred_shape
        )
        assert inferred_shape[-1] == out.shape[-1] or None in unknown[1:]


def test_a_layer_that_returns_its_input_has_a_new_output():
    x = fk.Input((4,), name="x")
    y = layers.Identity(name="same")(x)
    assert y is not x
    model = fk.Model(x, y)
    view = model.graph.layer("same")
    assert (view.input.coord, view.output.coord) == (("x", 0, 0), ("same", 0, 0))
    assert jax.make_jaxpr(lambda a: model.apply(a).value)(X).eqns == []
    np.testing.assert_array_equal(fk.Model(x, [x, y])(X)[0], X)


def test_a_numpy_array_is_recorded_as_a_constant():
    x = fk.Input((4,), name="x")
    y = x + np.ones((1, 4), "float32")
    assert y.node.inputs == (x,)
    constants = [leaf for leaf in y.node.args.children if isinstance(leaf, fk.engine.ArrayConstant)]
    assert len(constants) == 1
    assert constants[0].shape == (1, 4)
    node = fk.Model(x, y).graph.layer("add").nodes[0]
    assert node.inbound_layers == ("x",)
    assert None not in node.input_tensors


class Mode(Affine):
    """Affine with a state, and with an argument by position that is no tensor."""

    def build(self, key, x, mode):
        return super().build(key, x)

    def init_state(self, x, mode):
        return {"calls": jnp.zeros((), "int32")}

    def forward(self, context, x, mode):
        updates = {"calls": context.state["calls"] + 1} if context.training else None
        return fk.Output(self.call(x), updates, metrics={"size": jnp.float32(len(str(mode)))})


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "mode",
    ["sum", None, ..., jnp.float32, ("a", None), (0, 1), [["a"], 2], {"a": ()}],
    ids=lambda mode: "mode" if isinstance(mode, dict) else str(mode),
)
def test_arguments_by_position_that_are_no_tensors(mode):
    x = fk.Input((4,), name="x")
    recorded = Mode(3, name="mode")(x, mode)
    model = fk.Model(x, fk.ops.cast(recorded, "float32")).build(KEY)
    state = model.init_state()
    assert state.keys() == model.init_cache(8, 2).keys() == {"mode"}
    out = model.apply(X, state=state)
    np.testing.assert_allclose(out.value, X @ np.asarray(model.layers["mode"].kernel), rtol=1e-5)
    assert out.metrics["size"] == len(str(mode))


def test_repeated_calls_are_separate_nodes():
    inner = fk.Sequential([fk.Input((4,)), layers.Dense(4)], name="inner")
    xs = [fk.Input((4,)) for _ in range(5)]
    graph = fk.Model(xs, [inner(x) for x in xs]).graph
    assert len(graph.layer("inner").nodes) == 5
    assert len(inner.graph.layer("dense").nodes) == 1
    sources = [graph.layer("inner").get_input_at(i).coord.layer for i in range(5)]
    assert sources == list(graph.input_names)


def test_discarded_models_leave_no_memory():
    layer = layers.Dense(2).build(KEY, (None, 4))
    kinds = (fk.Graph, fk.Node, fk.KerasTensor, fk.Model)

    def count():
        gc.collect()
        return sum(isinstance(o, kinds) for o in gc.get_objects())

    def discard_models(times):
        for _ in range(times):
            x = fk.Input((4,))
            fk.Model(x, layer(layer(x)[:, :1] * np.ones((1, 4), "float32")))

    gc.freeze()  # objects of other tests need no traversal
    discard_models(2)
    object_count, attributes = count(), set(vars(layer))
    discard_models(50)
    assert count() == object_count
    assert set(vars(layer)) == attributes


def test_compiled_programs_name_their_layers():
    x = fk.Input((4,))
    inner = fk.Sequential([layers.Dense(3)], name="inner")
    model = fk.Model(x, layers.Dense(2, name="head")(inner(x)), name="model").build(KEY)
    lowered = jax.jit(lambda m, a: m(a)).lower(model, X)
    text = lowered.as_text(debug_info=True)
    assert "model/inner/dense/" in text
    assert "model/head/" in text


def test_an_error_leaves_no_name_scope():
    class Failing(fk.Layer):
        def call(self, x):
            raise RuntimeError("inside")

    x = fk.Input((4,))
    with pytest.raises(RuntimeError, match="inside") as raised:
        Failing(name="failing")(x)
    assert any("'failing' (Failing)" in note for note in raised.value.__notes__)
    with pytest.raises(RuntimeError, match="inside"):
        jax.jit(Failing(name="failing"))(X)
    tally = Tally("mean", name="after")
    text = jax.jit(lambda a: tally.apply(a)).lower(X).as_text(debug_info=True)
    assert "after/" in text
    assert "failing" not in text
    chex.assert_trees_all_close(tally.apply(X).metrics, {"mean": np.mean(X)}, rtol=1e-5)
    assert as_spec(X).shape == (8, 4)


class TwoCounts(fk.Layer):
    """Counts its training calls twice, and returns the entries of `updated`."""

    updated: tuple = ("a", "b")

    def init_state(self, *specs):
        return {"a": jnp.zeros(()), "b": jnp.zeros(())}

    def forward(self, context, x):
        if not context.training:
            return fk.Output(x)
        return fk.Output(x, updates={name: jnp.ones(()) for name in self.updated})


@pytest.mark.parametrize(
    ("updated", "message"),
    [(("a",), "without 'b'"), (("a", "b", "c"), "with 'c', which the state lacks")],
)
def test_updates_are_the_complete_state_of_a_layer(updated, message):
    x = fk.Input((3,))
    model = fk.Model(x, TwoCounts(name="counts")(x)).build(jax.random.key(0))
    out = model.apply(jnp.ones((1, 3)), state=model.init_state(), training=True)
    assert out.updates["counts"].keys() == {"a", "b"}
    with pytest.raises(fk.FKerasError, match="'counts'.*complete new state.*" + message):
        fk.Model(x, TwoCounts(updated, name="counts")(x))
