"""Layers as values: construction, attributes, names, queries on their calls."""

import dataclasses
import pickle

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers, ops
from tests.support.compile_counts import count_compiles
from tests.support.engine_layers import Affine, Checked

KEY = jax.random.key(3)
X = np.random.default_rng(0).normal(size=(5, 4)).astype("float32")


def shared_pair(second=4):
    """A layer called on two inputs, and the graph of both calls."""
    a, b = fk.Input((4,), name="a"), fk.Input((second,), name="b")
    return fk.Model([a, b], [(shared := layers.Dense(3, name="shared"))(a), shared(b)]).graph


def one_layer_model():
    x = fk.Input((4,), name="x")
    return fk.Model(x, layers.Dense(3, name="only")(x))


def functional():
    x = fk.Input((4,), name="x")
    return fk.Model(x, layers.Dense(3)(layers.Dense(2, "tanh")(x)), name="model")


def sequential():
    return fk.Sequential([layers.Dense(2, "tanh"), layers.Dense(3)], name="model")


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "make", [lambda: layers.Dense(3), functional, sequential, lambda: Affine(3)]
)
def test_models_follow_the_contract_of_layers(make):
    layer, spec = make(), (None, 4)
    assert isinstance(layer, fk.Layer)
    assert layer == make()
    assert hash(layer) == hash(make())
    assert not layer.built
    assert jax.tree.leaves(layer) == []
    built = layer.build(KEY, spec)
    assert not layer.built, "build returns a copy"
    assert built.built
    assert built != layer
    chex.assert_trees_all_equal(built, layer.build(KEY, spec))
    leaves, treedef = jax.tree.flatten(built)
    assert jax.tree.unflatten(treedef, leaves) == built
    assert pickle.loads(pickle.dumps(built)) == built
    custom = {type(layer).__name__: type(layer)}
    assert type(layer).from_config(layer.get_config(), custom) == layer
    y = built(X)
    np.testing.assert_array_equal(built.apply(X).value, y)
    np.testing.assert_allclose(jax.jit(lambda m, x: m(x))(built, X), y, rtol=1e-6)
    grads = jax.grad(lambda m: jnp.sum(m(X)))(built)
    assert jax.tree.structure(grads) == treedef
    other, _ = built.set_weights(built.get_weights())
    assert other == built
    tensor = built(fk.Input((4,)))
    assert tensor.shape == (None, 3)
    assert tensor.node.layer is built
    assert built.count_params() == sum(w.size for w in leaves)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("function", [ops.tanh, ops.lift(jnp.tanh)], ids=["ops", "lift"])
def test_a_function_of_arrays_is_one_node(function):
    x = fk.Input((4,), name="x")
    model = fk.Model(x, function(x))
    assert len(model.graph.calls) == 2
    np.testing.assert_array_equal(model(X), jnp.tanh(X))
    np.testing.assert_array_equal(function(X), jnp.tanh(X))
    with pytest.raises(fk.SymbolicValueError, match=r"symbolic tensor.*fk\.ops\.lift"):
        jnp.tanh(x)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("initializer", "mean", "variance"),
    [
        ("glorot_uniform", 0.0, 2 / 800),
        ("glorot_normal", 0.0, 2 / 800),
        ("he_uniform", 0.0, 2 / 400),
        ("he_normal", 0.0, 2 / 400),
        ("lecun_uniform", 0.0, 1 / 400),
        ("lecun_normal", 0.0, 1 / 400),
        ("random_normal", 0.0, 0.05**2),
        ("random_uniform", 0.0, 0.05**2 / 3),
    ],
)
def test_initializers_draw_from_the_distributions_of_keras(initializer, mean, variance):
    make = fk.initializers.get(initializer)
    w = make(KEY, (400, 400), "float32")
    np.testing.assert_array_equal(w, make(KEY, (400, 400), "float32"))
    np.testing.assert_array_equal(w, jax.jit(lambda k: make(k, (400, 400), "float32"))(KEY))
    assert not np.array_equal(w, make(jax.random.key(4), (400, 400), "float32"))
    assert np.var(w) == pytest.approx(variance, rel=0.01)
    assert abs(np.mean(w) - mean) < 0.01 * np.std(w)


def test_a_call_that_accepts_any_option_receives_only_passed_options():
    seen = []

    class Greedy(fk.Layer):
        supports_masking = True

        def call(self, x, **options):
            seen.append(options)
            return x

    ids = fk.Input((3,), dtype="int32")
    y = Greedy()(layers.Embedding(5, 2, mask_zero=True)(ids))
    assert y.node.masks[0] is not None, "there was a mask to be given"
    Greedy()(X)
    assert len(seen) >= 2
    assert all(options == {} for options in seen)


@pytest.mark.exhaustive
def test_a_list_of_one_tensor_equals_the_tensor():
    model = one_layer_model().build(KEY)
    np.testing.assert_array_equal(model([X]), model(X))
    x = fk.Input((4,))
    list_model = fk.Model([x], [ops.tanh(x)])
    assert isinstance(list_model([X]), list)


def test_a_constructor_that_raises_changes_no_other_layer():
    class Broken(fk.Layer):
        def __post_init__(self):
            super().__post_init__()
            raise RuntimeError("broken")

    earlier_layer = Affine(2)
    with pytest.raises(RuntimeError, match="broken"):
        Broken()
    later_layer = Affine(2)
    assert later_layer == earlier_layer
    assert len(jax.tree.leaves(later_layer.build(KEY, (None, 3)))) == 2


@pytest.mark.exhaustive
def test_a_wrapped_cell_has_each_weight_once():
    cell = layers.LSTMCell(3)
    rnn = layers.RNN(cell).build(KEY, (None, None, 2))
    leaves = jax.tree.leaves(rnn)
    assert sorted(w.shape for w in leaves) == [(2, 12), (3, 12), (12,)]
    assert len({id(w) for w in leaves}) == 3
    assert cell == layers.LSTMCell(3), "the cell that was wrapped is as it was"


def test_input_and_output_of_a_layer_in_a_graph():
    graph = one_layer_model().graph
    assert graph.layer("only").input.coord == ("x", 0, 0)
    assert graph.layer("only").output.coord == ("only", 0, 0)
    with pytest.raises(ValueError, match=r"no layer 'other' in this graph.*layers are: x, only"):
        graph.layer("other")
    with pytest.raises(AttributeError, match=r"'lone' \(Dense\).*model\.graph\.layer"):
        layers.Dense(2, name="lone").input  # noqa: B018
    for name in ("input", "output"):
        with pytest.raises(ValueError, match=rf"'shared'.*2 times.*{name}.*get_{name}_at\(0\)"):
            getattr(shared_pair().layer("shared"), name)


def test_masks_of_a_layer_in_a_graph():
    ids = fk.Input((3,), dtype="int32", name="ids")
    relu = layers.Activation("relu", name="relu")
    words = layers.Embedding(5, 2, mask_zero=True, name="words")(ids)
    graph = fk.Model(ids, relu(words)).graph
    assert graph.layer("words").input_mask is None
    assert graph.layer("words").output_mask.shape == (None, 3)
    assert graph.layer("relu").input_mask == graph.layer("words").output_mask
    twice = fk.Model(ids, [relu(words), relu(words)]).graph.layer("relu")
    for name in ("input_mask", "output_mask"):
        with pytest.raises(ValueError, match=rf"'relu'.*2 times.*get_{name}_at\(0\)"):
            getattr(twice, name)
    assert twice.get_output_mask_at(1).dtype == "bool"
    with pytest.raises(ValueError, match="no layer 'other' in this graph"):
        graph.layer("other").input_mask  # noqa: B018


def test_shapes_of_a_shared_layer_need_equal_calls():
    view = shared_pair().layer("shared")
    assert view.input_shape == (None, 4)
    assert view.output_shape == (None, 3)
    a, b = fk.Input((6, 4)), fk.Input((2, 4))
    shared = layers.Dense(3, name="shared")
    view = fk.Model([a, b], [shared(a), shared(b)]).graph.layer("shared")
    with pytest.raises(
        ValueError,
        match=r"'shared'.*different input shapes: \(None, 6, 4\), \(None, 2, 4\).*shape_at\(0\)",
    ):
        view.input_shape  # noqa: B018
    with pytest.raises(ValueError, match=r"different output shapes: \(None, 6, 3\)"):
        view.output_shape  # noqa: B018
    assert view.get_input_shape_at(1) == (None, 2, 4)


def test_an_unknown_call_index_is_an_error():
    view = one_layer_model().graph.layer("only")
    for method in ("input", "output", "input_shape", "output_shape", "input_mask", "output_mask"):
        read = getattr(view, f"get_{method}_at")
        read(0)
        with pytest.raises(
            ValueError, match=rf"'only'.*{method.replace('_', ' ')} of call 1.*1 call"
        ):
            read(1)
        with pytest.raises(fk.FKerasError, match="of call -1") as raised:
            read(-1)
        assert (raised.value.layer, raised.value.node) == ("only", -1)
    with pytest.raises(ValueError, match="no layer 'never'"):
        one_layer_model().graph.layer("never").get_output_at(0)


@pytest.mark.exhaustive
def test_outputs_of_each_call_of_a_shared_lstm():
    a, b = fk.Input((3, 4), name="a"), fk.Input((3, 4), name="b")
    lstm = layers.LSTM(2, name="lstm")
    encoded_a, encoded_b = lstm(a), lstm(b)
    model = fk.Model([a, b], [encoded_a, encoded_b])
    view = model.graph.layer("lstm")
    outputs = [model.graph.coords[slot] for slot in model.graph.output_slots]
    assert [view.get_output_at(i).coord for i in (0, 1)] == outputs
    assert outputs == [("lstm", 0, 0), ("lstm", 1, 0)]
    assert view.get_input_at(0).coord == ("a", 0, 0)
    assert view.get_input_at(1).coord == ("b", 0, 0)
    assert view.get_output_shape_at(1) == (None, 2)
    assert view.get_output_mask_at(0) is None
    merged = fk.Model([a, b], layers.Add(name="sum")([a, b])).graph.layer("sum")
    assert [t.coord.layer for t in merged.get_input_at(0)] == ["a", "b"], "several come as a list"


def test_input_spec_before_and_after_building():
    assert layers.Dense(2).input_spec == fk.InputSpec(min_ndim=2)
    built = layers.Dense(2).build(KEY, (None, 7))
    assert built.input_spec == fk.InputSpec(min_ndim=2, axes={-1: 7})
    assert Affine(2).input_spec is None


def test_an_input_spec_is_a_value():
    spec = fk.InputSpec(min_ndim=2, axes={-1: 4})
    assert spec == fk.InputSpec(min_ndim=2, axes={-1: 4})
    assert spec != fk.InputSpec(min_ndim=2, axes={-1: 5})
    assert hash(spec) == hash(fk.InputSpec(min_ndim=2, axes={-1: 4}))
    assert repr(spec) == "InputSpec(min_ndim=2, axes={-1: 4})"
    assert fk.InputSpec(shape=(None, 3)).ndim == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.min_ndim = 3
    with pytest.raises(ValueError, match="axes has axis 2, and an input has at most 2 axes"):
        fk.InputSpec(ndim=2, axes={2: 4})


def test_names_are_unique_within_one_model():
    first, second = layers.Dense(2, name="same"), layers.Dense(2, name="same")
    x = fk.Input((4,))
    for layer in (first, second):
        assert fk.Model(x, layer(x)).layers["same"].units == 2
    with pytest.raises(ValueError, match=r"two layers are named 'same'.*replace\(name='same_1'\)"):
        fk.Model(x, second(first(x)))
    with pytest.raises(ValueError, match=r"name: expected a non-empty string without '/'.*'a/b'"):
        layers.Dense(2, name="a/b")


@pytest.mark.exhaustive
@pytest.mark.parametrize("cls", [layers.LSTM, layers.GRU, layers.SimpleRNN])
def test_a_stateful_layer_continues_from_its_state(cls):
    x = np.random.default_rng(1).normal(size=(2, 6, 3)).astype("float32")
    plain = cls(4).build(KEY, (2, None, 3))
    layer = cls(4, stateful=True).build(KEY, (2, None, 3))
    first = layer.apply(x[:, :2], state=layer.init_state((2, None, 3)))
    second = layer.apply(x[:, 2:], state=first.updates, training=True)
    np.testing.assert_allclose(first.value, plain(x[:, :2]), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(second.value, plain(x), rtol=1e-5, atol=1e-6)
    assert not np.allclose(second.value, plain(x[:, 2:]))
    frozen = fk.freeze(layer).apply(x[:, :2], state=layer.init_state((2, None, 3)))
    chex.assert_trees_all_equal(frozen.updates, first.updates)
    assert layer.stateful
    assert not layers.Dense(2).stateful


def test_a_mask_for_a_layer_without_mask_support_is_an_error():
    class Blind(fk.Layer):
        def call(self, x):
            return x

    ids = fk.Input((3,), dtype="int32")
    words = layers.Embedding(5, 2, mask_zero=True)(ids)
    with pytest.raises(
        fk.FKerasError, match=r"'blind' \(Blind\): received a mask.*fk\.ops\.unmask"
    ):
        Blind(name="blind")(words)
    with pytest.raises(fk.FKerasError, match="received a mask"):
        Blind().apply(X, mask=np.ones(5, bool))
    assert Blind()(words, mask=None).shape == (None, 3, 2)
    assert layers.Activation("relu")(words).node.masks[0] is not None


@pytest.mark.exhaustive
def test_freezing_in_the_middle_of_training():
    x = fk.Input((4,))
    model = fk.Model(x, layers.Dense(1, name="head")(layers.Dense(3, "tanh", name="body")(x)))
    trainer = fk.Trainer(fk.optimizers.SGD(0.1), "mse")
    batch = X, X[:, :1] * 2
    step = jax.jit(trainer.step)
    run, _ = step(trainer.init(model, KEY), batch)
    frozen = trainer.init(fk.freeze(run.model, "body"), KEY)
    chex.assert_trees_all_equal(fk.unfreeze(frozen.model, "body"), run.model)
    frozen, _ = step(frozen, batch)
    trained_layers = frozen.model.layers
    chex.assert_trees_all_equal(trained_layers["body"].kernel, run.model.layers["body"].kernel)
    assert not np.array_equal(trained_layers["head"].kernel, run.model.layers["head"].kernel)
    with count_compiles() as compiled:
        unfrozen_run, _ = step(run.replace(model=fk.unfreeze(frozen.model, "body")), batch)
        step(frozen, batch)
    assert len(compiled) == 0, "both programs are there already"
    assert not np.array_equal(
        unfrozen_run.model.layers["body"].kernel, trained_layers["body"].kernel
    )


def test_uses_training_reports_layers_that_depend_on_it():
    x = fk.Input((4,))
    hidden = layers.Dense(3, "gelu")(x)
    assert not fk.Model(x, layers.Dense(2)(hidden)).uses_training
    assert fk.Model(x, layers.Dense(2)(layers.Dropout(0.5)(hidden))).uses_training
    assert not fk.Model(
        x, layers.Dense(2)(layers.Dropout(0.5)(hidden, training=True))
    ).uses_training
    normalized = fk.Model(x, layers.BatchNormalization()(hidden))
    assert normalized.uses_training
    assert not fk.freeze(normalized).uses_training
    nested = fk.Sequential([fk.Sequential([layers.Dropout(0.5)]), layers.Dense(1)])
    assert nested.build(KEY, (None, 4)).uses_training
    two_outputs = fk.Model([x, y := fk.Input((4,))], {"sum": layers.Dropout(0.1)(x) + y})
    assert two_outputs.uses_training
    with pytest.raises(fk.FKerasError, match="needs input shapes"):
        fk.Sequential([layers.Dense(1)]).uses_training  # noqa: B018


def test_networks_without_input_shapes_have_no_inputs():
    network = fk.Sequential([layers.Dense(1)])
    for name in ("inputs", "outputs", "input_names", "output_names"):
        assert not hasattr(network, name)
        with pytest.raises(fk.FKerasError, match=f"{name} needs input shapes"):
            getattr(network, name)


@pytest.mark.exhaustive
def test_weights_and_state_are_ordered_layer_by_layer():
    x = fk.Input((2,))
    y = layers.BatchNormalization(name="bn")(layers.Dense(3, name="first")(x))
    model = fk.Model(x, layers.Dense(1, name="last")(y)).build(KEY)
    state = model.init_state()
    weights_by_path = {
        f"{n}/{w}": v for n, layer in model.layers.items() for w, v in vars(layer).items()
    }
    order = ["first/kernel", "first/bias", "bn/gamma", "bn/beta", "last/kernel", "last/bias"]
    for leaf, name in zip(jax.tree.leaves(model), order, strict=True):
        assert leaf is weights_by_path[name]
    numbered = model.set_weights(
        [np.full(np.shape(w), i, "float32") for i, w in enumerate(model.get_weights(state))], state
    )
    model, state = numbered
    assert float(model.layers["bn"].beta[0]) == 3
    assert float(state["bn"]["moving_mean"][0]) == 4
    assert float(state["bn"]["moving_variance"][0]) == 5
    assert float(model.layers["last"].kernel[0, 0]) == 6
    assert [float(w.flat[0]) for w in model.get_weights(state)] == list(range(8))


def test_a_dtype_policy_separates_weights_from_computation():
    layer = layers.Dense(3, dtype="mixed_bfloat16").build(KEY, (None, 4))
    assert layer.kernel.dtype == jnp.float32
    assert layer(X).dtype == jnp.bfloat16
    assert (layer.policy.variable_dtype, layer.policy.compute_dtype) == ("float32", "bfloat16")
    assert layer(fk.Input((4,))).dtype == "bfloat16"
    grads = jax.jit(jax.grad(lambda m: jnp.sum(m(X).astype("float32"))))(layer)
    assert grads.kernel.dtype == jnp.float32
    assert layers.Dense(3).build(KEY, (None, 4))(X).dtype == jnp.float32
    with pytest.raises(ValueError, match="Did you mean 'mixed_bfloat16'"):
        layers.Dense(3, dtype="mixed_bfloat")


def test_a_subclass_with_a_call_of_its_own_has_cast_weights():
    class Named(layers.Dense):
        pass

    class Twice(layers.Dense):
        def call(self, x):
            return x @ self.kernel + 2 * self.bias[None]

    class Run(layers.Dense):
        def forward(self, context, x):
            return fk.Output(x @ self.kernel - self.bias[None])

    options = {"dtype": "mixed_bfloat16", "kernel_initializer": "zeros"}
    # a number that bfloat16 rounds to 1
    options["bias_initializer"] = fk.initializers.Constant(1 + 2**-10)
    for kind, factor in ((layers.Dense, 1), (Named, 1), (Twice, 2), (Run, -1)):
        y = kind(3, **options).build(KEY, (None, 4))(X)
        assert y.dtype == jnp.bfloat16 and jnp.all(y == factor)


def test_a_thousand_calls_do_not_change_a_layer():
    layer = layers.Dense(2).build(KEY, (None, 4))
    x, layer_hash, attributes = fk.Input((4,)), hash(layer), None
    for number in range(1000):
        layer(x)
        if number == 0:
            attributes = set(vars(layer))
    assert hash(layer) == layer_hash
    assert set(vars(layer)) == attributes


def test_an_unknown_argument_is_an_error():
    with pytest.raises(TypeError, match=r"Dense: there is no argument 'unit'.*mean 'units'"):
        layers.Dense(unit=3)
    with pytest.raises(TypeError, match=r"'kernel_initialiser'.*mean 'kernel_initializer'"):
        layers.Dense(3, kernel_initialiser="zeros")
    with pytest.raises(TypeError, match="there is no argument 'foo'. It takes: "):
        layers.Dense(3, foo=1)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("cls", "name"),
    [
        ("Dense", "dense"),
        ("MyHTTPLayer2D", "my_http_layer2d"),
        ("LSTM", "lstm"),
        ("Conv2DTranspose", "conv2d_transpose"),
        ("_Priv", "__priv"),
    ],
)
def test_automatic_names_of_classes(cls, name):
    layer_class = type(cls, (Affine,), {"__doc__": "A layer."})
    x = fk.Input((4,))
    model = fk.Model(x, layer_class(2)(layer_class(2)(x)))
    assert list(model.layers)[1:] == [name, f"{name}_1"]


def test_automatic_names_are_unique_per_graph():
    def make():
        x = fk.Input((4,))
        y = layers.Dense(2, name="dense_1")(layers.Dense(2)(x))
        return fk.Model(x, layers.Dense(2)(y))

    assert list(make().layers) == ["input_layer", "dense", "dense_1", "dense_2"]
    assert make() == make()
    assert hash(make()) == hash(make())


def test_the_batch_size_is_declared_at_the_input():
    x = fk.Input((3,), batch_size=5)
    assert x.shape == (5, 3)
    assert x.node.layer.batch_shape == (5, 3)
    assert fk.Input(batch_shape=(5, 3)).shape == (5, 3)
    assert fk.Sequential([x, layers.Dense(2)]).outputs.shape == (5, 2)
    for name in ("input_shape", "batch_input_shape", "input_dim"):
        with pytest.raises(TypeError, match=rf"Dense: there is no argument '{name}'.*fk\.Input"):
            layers.Dense(2, **{name: (3,)})


def test_an_input_is_a_symbolic_leaf():
    x = fk.Input((3,), name="x")
    assert x.shape == (None, 3)
    assert x.dtype == "float32"
    assert x.node.inputs == ()
    node = fk.Model(x, ops.tanh(x)).graph.layer("x").nodes[0]
    assert node.input_tensors == node.output_tensors
    assert node.inbound_layers == ()
    assert x.node.layer.built
    assert jax.tree.leaves(x.node.layer) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, r"either shape .* or batch_shape, received neither"),
        ({"shape": (3,), "batch_shape": (None, 3)}, "received both"),
        ({"shape": 3}, r"a tuple for shape, received the number 3.*fk\.Input\(\(3,\)\)"),
        ({"batch_shape": (2, 3), "batch_size": 2}, "batch_size is part of batch_shape"),
        ({"shape": (-1,)}, r"sizes of 0 or more and None, received \(None, -1\)"),
    ],
)
def test_wrong_arguments_of_an_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        fk.Input(**arguments)


def test_initial_weights_from_arrays():
    kernel, bias = np.full((4, 2), 0.5, "float32"), np.ones(2, "float32")
    layer, _ = layers.Dense(2).build(KEY, (None, 4)).set_weights([kernel, bias])
    np.testing.assert_array_equal(layer(np.ones((1, 4), "float32")), [[3.0, 3.0]])
    with pytest.raises(ValueError, match=r"'kernel' of shape \(4, 2\), received shape \(9, 9\)"):
        layer.set_weights([np.zeros((9, 9)), bias])
    with pytest.raises(TypeError, match=r"no argument 'weights'.*set_weights"):
        layers.Dense(2, weights=[kernel, bias])


def test_one_layer_built_for_two_shapes():
    layer = layers.Dense(2)
    small, large = layer.build(KEY, (None, 3)), layer.build(KEY, (None, 5))
    assert small.input_spec.axes == {-1: 3}
    assert large.input_spec.axes == {-1: 5}
    assert (layer.built, small.built, large.built) == (False, True, True)
    assert small(np.ones((1, 3), "float32")).shape == large(np.ones((1, 5), "float32")).shape


def test_a_symbolic_call_does_not_change_the_layer():
    layer, x = layers.Dense(2), fk.Input((4,))
    layer_hash, node = hash(layer), x.node
    y, z = layer(x), layer(x)
    assert isinstance(y, fk.KerasTensor)
    assert y is not x
    assert y is not z
    assert (y.shape, y.dtype, y.node.layer) == ((None, 2), "float32", layer)
    assert y.node.inputs == (x,)
    assert hash(layer) == layer_hash
    assert layer == layers.Dense(2)
    assert not layer.built
    assert x.node is node


@pytest.mark.parametrize("layer", [layers.Dense(2), Affine(2), fk.Sequential([layers.Dense(2)])])
def test_an_unbuilt_layer_on_an_array_names_build(layer):
    with pytest.raises(
        fk.FKerasError, match=r"no weights yet.*layer\.build\(jax\.random\.key\(0\)"
    ):
        layer(X)
    with pytest.raises(fk.FKerasError, match="no weights yet"):
        jax.jit(layer)(X)


def test_numbers_and_lists_are_not_tensors():
    layer = layers.Dense(2, name="dn").build(KEY, (None, 2))
    with pytest.raises(
        TypeError, match=r"'dn' \(Dense\).*symbolic tensors, received float.*asarray"
    ):
        layer([[1.0, 2.0]])
    with pytest.raises(TypeError, match="received str"):
        layer("numbers")
    with pytest.raises(TypeError, match="array of <U1"):
        layer(np.array([["a", "b"]]))
    assert layer(np.ones((1, 2), "float32")).shape == (1, 2)
    assert Checked()(X).shape == X.shape


def test_nan_equals_nan_in_the_weights_of_equal_layers():
    def layer(value, dtype="float32"):
        return layers.Dense(1).replace(kernel=np.full((2, 1), value).astype(dtype), _built=True)

    assert layer(np.nan) == layer(np.nan)
    assert layer(np.nan, jnp.bfloat16) == layer(np.nan, jnp.bfloat16)
    assert layer(np.nan) != layer(1.0)
    assert layer(np.nan) != layer(np.nan, "float64")
    assert layer(0.0) == layer(-0.0)
