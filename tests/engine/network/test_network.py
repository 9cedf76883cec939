"""Models: names, nesting, Sequential, subclasses, the three modes of a call."""

import dataclasses
import gc
import json
import re
import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.engine.call.building import build_shapes
from tests.support.compile_counts import count_compiles


def block(x, units, prefix=""):
    """A residual block whose layers are named, as in a pretrained network."""
    h = layers.Dense(units, name=f"{prefix}body")(x)
    h = layers.BatchNormalization(name=f"{prefix}norm")(h)
    return layers.Add(name=f"{prefix}sum")([x, h])


def resnet():
    x = fk.Input((4,), name="x")
    return fk.Model(x, block(block(x, 4, "a_"), 4, "b_"), name="resnet")


def encoder():
    x = fk.Input((4,), name="x")
    h = layers.Dense(3, activation="tanh", name="dense")(x)
    return fk.Model(x, layers.BatchNormalization(name="norm")(h), name="enc")


def nested():
    """A model that calls its encoder twice."""
    a, b = fk.Input((4,), name="a"), fk.Input((4,), name="b")
    enc = encoder()
    return fk.Model([a, b], layers.Dense(2, name="head")(enc(a) * enc(b)))


def ones(*shape):
    return np.ones(shape, "float32")


def test_explicit_names_must_differ():
    x = fk.Input((4,), name="x")
    h = layers.Dense(2, name="same")(layers.Dense(3, name="same")(x))
    with pytest.raises(ValueError, match=r"two layers are named 'same'.*replace\(name="):
        fk.Model(x, h)


def test_automatic_names_are_unique_and_skip_used_names():
    x = fk.Input((4,), name="x")
    h = layers.Dense(3)(layers.Dense(3, name="dense_1")(layers.Dense(3)(x)))
    assert list(fk.Model(x, h).layers) == ["x", "dense", "dense_1", "dense_2"]


@pytest.mark.exhaustive
def test_two_pretrained_networks_merge_under_a_prefix(key):
    first, second = resnet().build(key), resnet().build(jax.random.key(7))
    with pytest.raises(ValueError, match="two layers are named"):
        fk.Model([first.inputs, second.inputs], layers.Add()([first.outputs, second.outputs]))
    other = fk.rename(second, prefix="other_")
    assert list(other.layers) == [f"other_{n}" for n in second.layers]
    merged = fk.Model([first.inputs, other.inputs], layers.Add()([first.outputs, other.outputs]))
    assert merged.built
    assert merged.count_params() == first.count_params() + second.count_params()
    x, y = ones(2, 4), 2 * ones(2, 4)
    state = merged.init_state()
    assert set(state) == {"a_norm", "b_norm", "other_a_norm", "other_b_norm"}
    expected = first(x, state=first.init_state()) + second(y, state=second.init_state())
    np.testing.assert_allclose(merged([x, y], state=state), expected, rtol=1e-6)


def test_renaming_single_layers():
    model = resnet()
    renamed = fk.rename(model, {"a_body": "first"})
    assert list(renamed.layers) == [n.replace("a_body", "first") for n in model.layers]
    assert fk.rename(renamed, lambda n: "a_body" if n == "first" else n) == model
    with pytest.raises(ValueError, match=r"no layer 'a_bdy'.*Did you mean 'a_body'"):
        fk.rename(model, {"a_bdy": "first"})
    with pytest.raises(ValueError, match="two layers are named 'b_body'"):
        fk.rename(model, {"a_body": "b_body"})


@pytest.mark.exhaustive
def test_renaming_keeps_options_and_pinned_calls(key):
    x = fk.Input((4,), name="x")
    out = layers.Dropout(0.5, name="drop")(x, training=False) * np.float32(2.0)
    renamed = fk.rename(fk.Model(x, out), prefix="p_")
    assert renamed.graph.layer("p_drop").nodes[0].arguments == {"training": False}
    np.testing.assert_allclose(renamed.apply(ones(1, 4), training=True).value, 2 * ones(1, 4))


@pytest.mark.exhaustive
def test_deep_networks_build_hash_and_pickle_without_recursion():
    import pickle

    x = h = fk.Input((2,), name="x")
    for _ in range(3000):
        h = layers.Activation("tanh")(h)
    model = fk.Model(x, h)
    restored = pickle.loads(pickle.dumps(model))
    assert restored == model
    assert len(model.graph.ancestors("activation_2999")) == 3000


def test_an_input_given_twice_is_an_error():
    x = fk.Input((4,), name="x")
    with pytest.raises(ValueError, match="given twice"):
        fk.Model([x, x], layers.Dense(2)(x))


def test_inputs_and_outputs_must_be_symbolic():
    x = fk.Input((4,), name="x")
    y = layers.Dense(2)(x)
    with pytest.raises(TypeError, match="symbolic tensors as inputs, received ndarray"):
        fk.Model(ones(2, 4), y)
    with pytest.raises(TypeError, match="symbolic tensors as outputs, received Dense"):
        fk.Model(x, layers.Dense(2))
    with pytest.raises(ValueError, match="at least one symbolic tensor as outputs"):
        fk.Model(x, [])


@pytest.mark.exhaustive
def test_a_tensor_from_the_middle_cuts_the_graph(key):
    x = fk.Input((4,), name="x")
    first, second = layers.Dense(3, name="first"), layers.Dense(2, name="second")
    h = first(x)
    y = second(h)
    model = fk.Model(x, y).build(key)
    recorded_part = fk.Model(h, y)
    assert list(recorded_part.layers) == ["input_layer", "second"]
    assert recorded_part.graph.layer("input_layer").output_shape == (None, 3)
    assert (first, second) == (layers.Dense(3, name="first"), layers.Dense(2, name="second"))
    upper_part = fk.Model(model.tensor("first"), model.outputs)
    values = np.asarray(model.layers["first"](ones(2, 4)))
    np.testing.assert_allclose(upper_part(values), model(ones(2, 4)), rtol=1e-6)


@pytest.mark.parametrize("spec", [(None, 3), (None, 2, 1), (None,)], ids=str)
def test_specs_that_do_not_fit_the_inputs_are_an_error(key, spec):
    model = fk.Sequential([fk.Input((2,)), layers.Dense(1)])
    for method in (lambda: model.build(key, spec), lambda: model.init_state(spec)):
        with pytest.raises(fk.FKerasError, match=r"expected a spec of shape \(None, 2\), received"):
            method()
    assert model.build(key, (5, 2)) == model.build(key)


def test_an_unused_input_is_allowed(key):
    x, unused = fk.Input((4,), name="x"), fk.Input((7,), name="unused")
    model = fk.Model([x, unused], layers.Dense(2, name="d")(x)).build(key)
    assert model.input_names == ("x", "unused")
    assert "unused" in model.layers
    outputs = model([ones(2, 4), ones(2, 7)])
    np.testing.assert_array_equal(outputs, model([ones(2, 4), 5 * ones(2, 7)]))
    with pytest.raises(fk.FKerasError, match=r"expected 2 inputs as \[x, unused\], received 1"):
        model(ones(2, 4))
    by_name = model({"unused": ones(2, 7), "x": ones(2, 4)})
    np.testing.assert_array_equal(outputs, by_name)
    with pytest.raises(fk.FKerasError, match=r"names x, unused; missing: unused; unknown: none"):
        model({"x": jnp.ones((1, 2))})


@pytest.mark.exhaustive
def test_repeated_calls_leave_memory_flat(key):
    model = resnet().build(key)
    state, x = model.init_state(), ones(2, 4)
    graph = model.graph
    for _ in range(50):
        model(x, state=state)
    gc.collect()
    tracemalloc.start()
    try:
        start_size = tracemalloc.get_traced_memory()[0]
        with count_compiles() as compiles:
            for _ in range(1000):
                model(x, state=state)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - start_size
    finally:
        tracemalloc.stop()
    assert grown < 50_000
    assert len(compiles) == 0
    assert model.graph is graph


def test_every_call_is_computed_once(key):
    x = fk.Input((4,), name="x")
    h = layers.Dense(4, activation="tanh", name="h")(x)
    model = fk.Model(x, [h + h, layers.Add()([h, h]), h * 2.0]).build(key)
    text = str(jax.make_jaxpr(lambda m, v: m(v))(model, ones(2, 4)))
    assert text.count("dot_general") == 1
    assert text.count(" tanh") == 1


def test_a_nested_model_is_one_node_a_call(key):
    model = nested()
    assert len(model.graph.layer("enc").nodes) == 2
    inner = model.layers["enc"]
    assert [len(inner.graph.layer(n).nodes) for n in inner.graph.layers] == [1, 1, 1]
    with pytest.raises(ValueError, match="called 2 times"):
        _ = model.graph.layer("enc").output
    assert inner.graph.layer("norm").output.coord == ("norm", 0, 0)
    assert model.build(key).count_params() == (4 * 3 + 3) + 6 + (3 * 2 + 2)
    assert set(model.init_state()) == {"enc"}
    assert set(model.init_state()["enc"]) == {"norm"}


@pytest.mark.exhaustive
def test_a_nested_model_is_an_ordinary_layer(key):
    model = nested().build(key)
    enc = model.layers["enc"]
    other_input = fk.Input((4,), name="again")
    other = fk.Model(other_input, enc(other_input))
    assert other.built
    state = {"enc": enc.init_state()}
    np.testing.assert_array_equal(
        other(ones(2, 4), state=state), enc(ones(2, 4), state=state["enc"])
    )
    assert other.layers["enc"].layers["dense"].kernel is enc.layers["dense"].kernel


@pytest.mark.exhaustive
def test_inlining_changes_no_value(key):
    model = nested().build(key)
    flat = fk.inline(model, "enc")
    assert list(flat.layers) == ["a", "b", "enc_dense", "enc_norm", "multiply", "head"]
    assert flat.built
    assert flat.count_params() == model.count_params()
    assert len(flat.graph.layer("enc_dense").nodes) == 2
    x = [ones(3, 4), jax.random.normal(key, (3, 4))]
    out = model.apply(x, state=model.init_state(), training=True)
    flat_out = flat.apply(x, state=flat.init_state(), training=True)
    np.testing.assert_allclose(flat_out.value, out.value, rtol=1e-6)
    for name, value in out.updates["enc"]["norm"].items():
        np.testing.assert_allclose(flat_out.updates["enc_norm"][name], value, rtol=1e-6)


@pytest.mark.exhaustive
def test_inlining_carries_a_pinned_mode_and_masks(key):
    ids = fk.Input((5,), dtype="int32", name="ids")
    vectors = fk.Input((5, 3), name="words")
    body = layers.LSTM(2, name="lstm")(layers.Dropout(0.5, name="drop")(vectors))
    inner = fk.Model(vectors, body, name="inner")
    out = inner(layers.Embedding(9, 3, mask_zero=True, name="embed")(ids), training=False)
    model = fk.Model(ids, out).build(key)
    flat = fk.inline(model, "inner")
    assert flat.graph.layer("inner_drop").nodes[0].arguments == {"training": False}
    assert flat.graph.layer("inner_lstm").input_mask is not None
    x = np.array([[1, 2, 0, 0, 0]], "int32")
    np.testing.assert_allclose(
        flat.apply(x, training=True).value, model.apply(x, training=True).value, rtol=1e-6
    )


def test_inlining_a_sequential_and_models_that_cannot_be_inlined():
    x = fk.Input((4,), name="x")
    stack = fk.Sequential([layers.Dense(3), layers.Dense(2)], name="stack")
    model = fk.Model(x, stack(x))
    assert list(fk.inline(model, "stack").layers) == ["x", "stack_dense", "stack_dense_1"]
    with pytest.raises(TypeError, match="'d' .Dense., which has no graph"):
        fk.inline(fk.Model(x, layers.Dense(2, name="d")(x)), "d")
    with pytest.raises(ValueError, match="no layer 'stak'.*Did you mean 'stack'"):
        fk.inline(model, "stak")


def test_freezing_a_sub_model(key):
    model = nested().build(key)
    frozen = fk.freeze(model, "enc")
    trainable, untrained = fk.partition(frozen)
    assert [w.shape for w in jax.tree.leaves(trainable)] == [(3, 2), (2,)]
    assert len(jax.tree.leaves(untrained)) == 4
    assert fk.combine(trainable, untrained) == frozen
    assert not frozen.layers["enc"].layers["norm"].trainable
    partly_frozen = fk.freeze(model, "enc/dense")
    assert len(jax.tree.leaves(fk.partition(partly_frozen)[0])) == 4
    assert partly_frozen.layers["enc"].trainable
    assert fk.unfreeze(frozen, "enc") == model
    assert model.layers["enc"].trainable


def test_trainable_of_the_constructor_applies_to_all_layers_inside(key):
    x = fk.Input((4,), name="x")
    model = fk.Model(x, encoder()(x), trainable=False).build(key)
    assert jax.tree.leaves(fk.partition(model)[0]) == []
    assert not model.layers["enc"].layers["dense"].trainable


def test_layers_by_name_and_index():
    model = resnet()
    assert model.get_layer("a_body").units == 4
    assert model.get_layer(index=1) is model.layers["a_body"]
    assert model.get_layer(index=-1) is model.layers["b_sum"]
    with pytest.raises(ValueError, match="no layer 'zz'.*Existing layers are: x, a_body"):
        model.get_layer("zz")
    with pytest.raises(ValueError, match="expected a name or an index, received neither"):
        model.get_layer()
    with pytest.raises(ValueError, match="asked for layer 99, but the model has 7 layers"):
        model.get_layer(index=99)
    with pytest.raises(ValueError, match="no layer 'zz' in this graph"):
        model.graph.layer("zz")


class Residual(fk.Model):
    """Two layers and a connection around them."""

    units: int
    rate: float = 0.0

    def call(self, x):
        h = layers.Dense(self.units, activation="tanh", name="inner")(x)
        return x + layers.Dropout(self.rate)(h)


class WithoutCall(fk.Model):
    """A subclass without `call`."""

    units: int = 2


@pytest.mark.exhaustive
def test_a_subclass_is_recorded_and_goes_to_json(key):
    x = fk.Input((4,), name="x")
    model = fk.Model(x, Residual(4, name="second")(Residual(4, name="first")(x))).build(key)
    assert set(model.layers["first"].layers) == {"input_layer", "inner", "dropout", "add"}
    config = json.loads(json.dumps(model.get_config()))
    restored = fk.Model.from_config(config, {"Residual": Residual})
    assert restored == nested_free(model)
    restored, _ = restored.build(jax.random.key(5)).set_weights(model.get_weights())
    np.testing.assert_array_equal(restored(ones(2, 4)), model(ones(2, 4)))


def nested_free(model):
    """The model without weights."""
    return fk.engine.unbuilt(model)


def test_a_subclass_as_a_plain_model(key):
    model = Residual(4).build(key, (None, 4))
    plain = model.functional()
    assert type(plain) is fk.Model
    restored = fk.Model.from_config(json.loads(json.dumps(plain.get_config())))
    restored, _ = restored.build(key).set_weights(model.get_weights())
    np.testing.assert_array_equal(restored(ones(2, 4)), model(ones(2, 4)))


def test_mistakes_in_subclasses_are_reported():
    x = fk.Input((4,))
    with pytest.raises(NotImplementedError, match="has no `call`"):
        WithoutCall()(x)
    with pytest.raises(TypeError, match=r"'unts'. Did you mean 'units'"):
        Residual(unts=4)
    assert Residual(4) == Residual(4)
    assert Residual(4) != Residual(5)


def test_sequential_models_build_later(key):
    model = fk.Sequential([layers.Dense(2), layers.Dense(3)])
    assert not model.built
    assert jax.tree.leaves(model) == []
    built = model.build(key, (None, 4))
    assert len(jax.tree.leaves(built)) == 4
    assert jax.tree.leaves(model) == []
    assert built.graph.layer("dense_1").output_shape == (None, 3)
    with pytest.raises(fk.FKerasError, match="Build it"):
        model(ones(2, 4))


def test_a_sequential_that_begins_with_a_model_has_the_input_of_the_model(key):
    x = fk.Input((None, 3))
    for base in (fk.Model(x, layers.Dense(2)(x)), fk.Sequential([x, layers.Dense(2)])):
        model = fk.Sequential([base, layers.Flatten(), layers.Dropout(0.5)])
        assert model.inputs.shape == (None, None, 3)
        assert len(model) == 3
        again = fk.Sequential.from_config(model.get_config())
        assert again == model
        assert fk.Trainer("sgd", "mse").init(model, key).model.built
    pair = fk.Model([x, fk.Input((1,))], x)
    assert fk.Sequential([pair, layers.Flatten()]).graph is None


def test_add_pop_and_slices_return_new_models(key):
    model = fk.Sequential([fk.Input((4,)), layers.Dense(3)])
    longer = model.add(layers.Dense(2)).add(layers.Activation("relu"))
    assert (len(model), len(longer)) == (1, 3)
    assert longer.pop().pop() == model
    built = longer.build(key)
    front_layers = built[:-1]
    assert isinstance(front_layers, fk.Sequential)
    assert front_layers.built
    assert [layer.name for layer in front_layers] == ["dense", "dense_1"]
    assert front_layers[0].kernel is built[0].kernel
    assert built[-1].activation is layers.Activation("relu").activation
    np.testing.assert_array_equal(built[1:](built[0](ones(2, 4))), built(ones(2, 4)))
    assert [layer.name for layer in built] == ["dense", "dense_1", "activation"]


@pytest.mark.exhaustive
def test_public_names_of_models_are_for_users():
    model = fk.Sequential([fk.Input((4,)), layers.Dense(3)])
    plain = {name for name in dir(layers.Dense(3)) if not name.startswith("_")}
    names = {name for name in dir(model) if not name.startswith("_")} - plain
    assert names == {
        *(
            "add",
            "get_layer",
            "graph",
            "input_names",
            "inputs",
            "layers",
            "output_names",
            "outputs",
        ),
        *("pop", "summary", "tensor", "uses_training"),
    }
    functional = {name for name in dir(fk.Model(model.inputs, model.outputs)) if name[0] != "_"}
    assert functional == (plain - {*layers.Dense.__dataclass_fields__}) | names - {"add", "pop"} | {
        *("dtype", "functional", "name", "supports_masking", "trainable"),
    }


class Two(fk.Layer):
    """A layer with two outputs."""

    def call(self, x):
        return x, x


def test_mistakes_in_sequential_models_are_reported():
    with pytest.raises(TypeError, match="expected layers, received int"):
        fk.Sequential([layers.Dense(2), 3])
    with pytest.raises(TypeError, match=r"It is a class: write Dense\("):
        fk.Sequential([layers.Dense])
    with pytest.raises(TypeError, match="layers.Lambda"):
        fk.Sequential([jnp.tanh])
    with pytest.raises(TypeError, match=r"Write fk.Sequential\(\[layer\]\)"):
        fk.Sequential(layers.Dense(2))
    with pytest.raises(ValueError, match="returns tuple"):
        fk.Sequential([fk.Input((2,)), Two()])
    with pytest.raises(IndexError, match="no layer to remove"):
        fk.Sequential([]).pop()
    with pytest.raises(ValueError, match="has no layers"):
        fk.Sequential([]).build(jax.random.key(0), (None, 2))
    with pytest.raises(IndexError):
        _ = fk.Sequential([layers.Dense(2)])[3]


def test_json_round_trip_of_sequential_models():
    for model in (
        fk.Sequential([fk.Input((4,)), layers.Dense(3), layers.Dropout(0.5)], name="s"),
        fk.Sequential([layers.Dense(3), layers.Dense(3)]),
    ):
        config = json.loads(json.dumps(model.get_config()))
        assert fk.Sequential.from_config(config) == model


@pytest.mark.exhaustive
def test_paths_of_nested_weights_are_names(key):
    model = nested().build(key)
    pairs = jax.tree_util.tree_leaves_with_path(model)
    assert [jax.tree_util.keystr(p, simple=True, separator="/") for p, _ in pairs] == [
        "enc/dense/kernel",
        "enc/dense/bias",
        "enc/norm/gamma",
        "enc/norm/beta",
        "head/kernel",
        "head/bias",
    ]


def test_fields_cannot_be_set(key):
    layer = layers.Dense(2).build(key, (None, 3))
    model = resnet()
    for value, name in ((layer, "kernel"), (layer, "units"), (model, "graph"), (model, "new")):
        with pytest.raises(dataclasses.FrozenInstanceError, match=name):
            setattr(value, name, None)
    with pytest.raises(dataclasses.FrozenInstanceError, match="fk.freeze"):
        layer.trainable = False
    with pytest.raises(dataclasses.FrozenInstanceError):
        del layer.kernel
    with pytest.raises(TypeError):
        model.layers["a_body"] = layer
    with pytest.raises(dataclasses.FrozenInstanceError):
        model.graph.calls = ()


class SimpleDense(fk.Layer):
    """x @ w + b, the layer of Keras's guide."""

    units: int = 32
    w: jax.Array | None = fk.weight(initializer=fk.initializers.RandomNormal())
    b: jax.Array | None = fk.weight(initializer=fk.initializers.Zeros())

    def build(self, key, x):
        return self.with_weights(key, w=(x.shape[-1], self.units), b=(self.units,))

    def call(self, x):
        return x @ self.w + self.b.reshape(1, -1)


@pytest.mark.exhaustive
def test_an_attribute_of_keras_names_its_replacement():
    with pytest.raises(AttributeError, match="Did you mean 'units'"):
        _ = layers.Dense(2).unit
    with pytest.raises(AttributeError, match="Trainer"):
        _ = resnet().fit()
    assert getattr(layers.Dense(2), "unit", None) is None


@pytest.mark.exhaustive
def test_a_layer_of_three_methods_trains(key):
    x = fk.Input((3,), name="x")
    model = fk.Model(x, SimpleDense(1)(SimpleDense(4)(x))).build(key)
    assert model.count_params() == 3 * 4 + 4 + 4 + 1
    xs = jax.random.normal(jax.random.key(1), (16, 3))
    ys = jnp.sum(xs, axis=1, keepdims=True)

    def loss(model):
        return jnp.mean(jnp.square(model(xs) - ys))

    @jax.jit
    def step(model):
        value, grads = jax.value_and_grad(loss)(model)
        return jax.tree.map(lambda w, g: w - 0.1 * g, model, grads), value

    losses = []
    for _ in range(100):
        model, value = step(model)
        losses.append(float(value))
    assert losses[-1] < 0.1 * losses[0]


def test_abstract_build_of_a_billion_weights_allocates_nothing(key):
    x = fk.Input((32_768,), name="x")
    model = fk.Model(x, layers.Dense(32_768)(x))
    array_ids = {id(a) for a in jax.live_arrays()}
    shapes = jax.eval_shape(model.build, key)
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == 32_768 * 32_769
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(shapes))
    assert isinstance(shapes, fk.Model)
    assert sum(a.size for a in jax.live_arrays() if id(a) not in array_ids) < 10_000


def test_input_specs_are_checked_before_weights_are_made(key):
    with pytest.raises(fk.InputSpecError):
        layers.Dense(2).build(key, (4,))
    with pytest.raises(ValueError, match="needs known sizes"):
        layers.Dense(2).build(key, (None, None))


def test_a_layer_on_a_numpy_array(key):
    layer = layers.Dense(15).build(key, (None, 10))
    assert layer(np.random.default_rng(0).random((20, 10), "float32")).shape == (20, 15)
    with pytest.raises(fk.FKerasError, match="no weights yet"):
        layers.Dense(15)(ones(20, 10))


@pytest.mark.exhaustive
def test_one_layer_in_three_modes(key):
    layer = layers.Dense(3, activation="tanh").build(key, (None, 4))
    x = jax.random.normal(jax.random.key(1), (2, 4))
    concrete = layer(x)
    traced = jax.jit(lambda layer, x: layer(x))(layer, x)
    symbol = fk.Input((4,))
    recorded = layer(symbol)
    assert isinstance(recorded, fk.KerasTensor)
    np.testing.assert_allclose(traced, concrete, rtol=1e-6)
    np.testing.assert_allclose(fk.Model(symbol, recorded)(x), concrete, rtol=1e-6)


def test_a_symbolic_tensor_is_a_spec_and_an_origin():
    x = fk.Input((None, 4), name="x")
    y = layers.Dense(3)(x)
    assert y.shape == (None, None, 3)
    assert y.dtype == "float32"
    assert str(y.spec) == "(b, d1, 3)"
    assert y.node.inputs == (x,)
    with pytest.raises(fk.SymbolicValueError):
        float(y)
    with pytest.raises(fk.SymbolicValueError):
        bool(y > 0)
    with pytest.raises(fk.SymbolicValueError):
        np.asarray(y)


def test_graphs_are_hashable_values():
    def candidate(width, depth):
        x = h = fk.Input((4,), name="x")
        for _ in range(depth):
            h = layers.Dense(width)(h)
        return fk.Model(x, h)

    sizes_by_model = {}
    for width, depth in [(2, 1), (2, 2), (3, 1), (2, 1), (3, 1)]:
        sizes_by_model.setdefault(candidate(width, depth), []).append((width, depth))
    assert sorted(map(len, sizes_by_model.values())) == [1, 2, 2]
    assert sizes_by_model[candidate(2, 1)] == [(2, 1), (2, 1)]


@pytest.mark.exhaustive
def test_equal_networks_share_one_compiled_program(key):
    first, second = resnet().build(key), resnet().build(jax.random.key(3))
    state, x = first.init_state(), ones(3, 4)
    first(x, state=state)
    with count_compiles() as compiles:
        second(x, state=state)
    assert len(compiles) == 0
    assert first != second
    assert fk.engine.unbuilt(first) == fk.engine.unbuilt(second)


def test_a_graph_prints_its_calls_in_order(capsys):
    model = nested()
    text = model.summary(show=False)
    assert capsys.readouterr().out == ""
    assert model.summary() is None and capsys.readouterr().out == f"{text}\n"
    assert [name for name in ("a (", "enc (", "multiply (", "head (") if name not in text] == []
    assert "enc[0][0], enc[1][0]" in text
    diagram = fk.to_mermaid(model)
    assert re.search(r"head", diagram)
    assert diagram == fk.to_mermaid(nested())


@pytest.mark.exhaustive
def test_shapes_of_equal_blocks_are_computed_once(key):
    builds = []

    class Scale(fk.Layer):
        factor: float = 1.0
        scale: jax.Array | None = fk.weight(initializer=fk.initializers.Ones())

        def build(self, key, x):
            builds.append(self.factor)
            return self.with_weights(key, scale=(x.shape[-1],))

        def call(self, x):
            return jnp.einsum("bc,c->bc", x, self.scale) * self.factor

    def inner(factor=1.0):
        x = fk.Input((4,))
        return fk.Model(x, Scale(factor, name="scale")(x))

    x = fk.Input((4,))
    blocks = [inner(), inner(), inner(2.0), inner().build(key)]
    y = x
    for number, block in enumerate(blocks):
        y = block.replace(name=f"block_{number}")(y)
    model = fk.Model(x, y)
    expected = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), model.build(key))
    builds.clear()
    assert build_shapes(model)[0] == expected
    assert builds == [1.0, 2.0]
