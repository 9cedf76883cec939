"""Wrappers, and models of other libraries as layers, beyond the layer table."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from tests.cases.wrappers import call_affine, call_counter, init_affine, init_counter
from tests.support.keras_oracle import keras, keras_rules

KEY = jax.random.key(0)


def call_other(weights, x):
    """A function whose names say nothing: the layer calls it with all five arguments."""
    return x


def _data(*shape, seed=0):
    return np.random.default_rng(seed).normal(0.0, 1.0, shape).astype("float32")


def test_the_estimate_becomes_the_largest_singular_value():
    x = _data(2, 6)
    layer = layers.SpectralNormalization(layers.Dense(4, use_bias=False), always=True)
    layer = layer.build(KEY, x)
    state = layer.init_state(x)
    for _ in range(40):
        out = layer.apply(x, state=state, training=True)
        state = state | out.updates
    kernel = np.asarray(layer.layer.kernel)
    expected = x @ kernel / np.linalg.svd(kernel)[1][0]
    np.testing.assert_allclose(out.value, expected, rtol=1e-3, atol=1e-5)
    # with always=True, inference also uses the divided kernel, without updating the state
    last = layer.apply(x, state=state)
    np.testing.assert_allclose(last.value, expected, rtol=1e-3, atol=1e-5)
    assert last.updates == {}


@pytest.mark.exhaustive
def test_inference_uses_the_undivided_kernel_unless_always_is_set():
    x = _data(2, 5)
    layer = layers.SpectralNormalization(layers.Dense(3)).build(KEY, x)
    state = layer.init_state(x)
    with keras_rules():
        reference = keras.layers.deserialize(layers.serialize(fk.engine.unbuilt(layer)))
        reference.build(x.shape)
        reference.set_weights(layer.get_weights(state))
        theirs = np.asarray(reference(x, training=False))
        trained = np.asarray(reference(x, training=True))
    np.testing.assert_allclose(layer.apply(x, state=state).value, theirs, rtol=1e-5)
    training = layer.apply(x, state=state, training=True)
    np.testing.assert_allclose(training.value, trained, rtol=1e-5)
    always = layer.replace(always=True)
    assert "always" not in layer.get_config()
    assert type(layer).from_config(always.get_config()).always
    np.testing.assert_allclose(always.apply(x, state=state).value, training.value, rtol=1e-6)


@pytest.mark.exhaustive
def test_the_gradient_goes_through_the_division():
    x = _data(8, 5)
    layer = layers.SpectralNormalization(layers.Dense(3, use_bias=False)).build(KEY, x)
    state = layer.init_state(x)

    def score(layer):
        return layer.apply(x, state=state, training=True).value.sum()

    grad = jax.grad(score)(layer).layer.kernel
    # a larger kernel is the same kernel after division
    np.testing.assert_allclose(jnp.vdot(grad, layer.layer.kernel), 0.0, atol=1e-4)
    zeros, _ = layer.set_weights([np.zeros((5, 3))])
    value, grads = jax.value_and_grad(score)(zeros)
    assert value == 0
    assert bool(jnp.isfinite(grads.layer.kernel).all())
    out = zeros.apply(x, state=state, training=True)
    np.testing.assert_array_equal(out.updates["vector_u"], state["vector_u"])


def test_a_frozen_layer_keeps_its_vector():
    x = _data(2, 5)
    layer = fk.freeze(layers.SpectralNormalization(layers.Dense(3)).build(KEY, x))
    assert layer.apply(x, state=layer.init_state(x), training=True).updates == {}


@pytest.mark.exhaustive
def test_weights_of_a_model_come_in_the_order_of_keras():
    inner = layers.SpectralNormalization(layers.Dense(3), name="sn")
    model = fk.Sequential([fk.Input((5,)), inner, layers.Dense(2)]).build(KEY)
    with keras_rules():
        reference = keras.Sequential(
            [
                keras.Input((5,)),
                keras.layers.SpectralNormalization(keras.layers.Dense(3)),
                keras.layers.Dense(2),
            ]
        )
        shapes = [w.shape for w in reference.get_weights()]
    values = model.get_weights(model.init_state())
    assert [v.shape for v in values] == shapes == [(5, 3), (1, 3), (3,), (3, 2), (2,)]
    again, _ = model.set_weights(values, model.init_state())
    assert again == model


def test_state_of_the_inner_layer_is_kept():
    inner = fk.Sequential([layers.Dense(3), layers.BatchNormalization()])
    layer = layers.Wrapper(inner).build(KEY, (4, 5))
    state = layer.init_state((4, 5))
    out = layer.apply(_data(4, 5), state=state, training=True)
    assert jax.tree.structure(state | out.updates) == jax.tree.structure(state)
    assert layer.apply(_data(4, 5), state=state).updates == {}


@pytest.mark.exhaustive
def test_a_pipeline_equals_its_layers_in_sequence():
    x = _data(4, 3)
    members = [layers.Dense(5), fk.Sequential([layers.Dense(4)]), layers.BatchNormalization()]
    pipeline = layers.Pipeline(members).build(KEY, x)
    state = pipeline.init_state(x)
    assert list(state) == ["layers/2"]
    out = pipeline.apply(x, state=state, training=True)
    y = pipeline.layers[1](pipeline.layers[0](x))
    inner = pipeline.layers[2].apply(y, state=state["layers/2"], training=True)
    np.testing.assert_allclose(out.value, inner.value, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        out.updates["layers/2"]["moving_mean"], inner.updates["moving_mean"], rtol=1e-5
    )
    model = fk.Sequential([fk.Input((3,)), layers.Pipeline(members)]).build(KEY)
    assert model(x, state=model.init_state()).shape == (4, 4)


@pytest.mark.exhaustive
def test_a_pipeline_accepts_dictionaries_and_the_mode_of_the_call():
    class Halve(fk.Layer):
        """Divides the images of a dictionary by 2."""

        def call(self, x):
            return {**x, "images": x["images"] / 2}

    data = {"images": jnp.ones((2, 3)), "labels": jnp.arange(2)}
    out = layers.Pipeline([Halve(), layers.Identity(), Halve()])(data)
    np.testing.assert_array_equal(out["images"], 0.25)
    np.testing.assert_array_equal(out["labels"], [0, 1])
    noisy = layers.Pipeline([layers.GaussianNoise(1.0), layers.GaussianNoise(1.0)])
    x = jnp.zeros((50, 50))
    np.testing.assert_array_equal(noisy(x), x)
    # each layer draws independently: variances add up
    std = float(noisy(x, training=True, key=KEY).std())
    np.testing.assert_allclose(std, 2**0.5, rtol=0.05)


@pytest.mark.exhaustive
def test_a_mask_passes_through_a_pipeline():
    pipeline = layers.Pipeline([layers.Masking(), layers.LSTM(2)]).build(KEY, (2, 4, 3))
    x = _data(2, 4, 3)
    x[:, 2:] = 0.0
    np.testing.assert_allclose(pipeline(x), pipeline(x[:, :2]), rtol=1e-6)


def test_jax_layer_matches_keras():
    x = _data(4, 5)
    kernel, bias = jax.device_put((_data(5, 3, seed=1), np.zeros(3, "float32")))
    params = {"affine": {"kernel": kernel, "bias": [bias]}}
    layer = layers.JaxLayer(call_affine, params=params, call_arguments=("params", "inputs"))
    with keras_rules():
        reference = keras.layers.JaxLayer(call_affine, params=params)
        value, weights = jax.jit(lambda x: reference(x))(x), reference.get_weights()
    np.testing.assert_allclose(layer(x), value, rtol=1e-5)
    for actual, expected in zip(layer.get_weights(), weights, strict=True):
        np.testing.assert_allclose(actual, expected)
    assert list(layer.params) == ["affine.bias.0", "affine.kernel"]


@pytest.mark.exhaustive
def test_weights_can_be_trained_and_frozen():
    x = _data(4, 5)
    layer = layers.JaxLayer(call_affine, init_affine, call_arguments=("params", "inputs"))
    model = fk.Sequential([fk.Input((5,)), layer, layers.Dense(2)]).build(KEY)
    paths = ["jax_layer/params/affine.bias.0/value", "jax_layer/params/affine.kernel/value"]
    assert sorted(fk.engine.trainable_weights(model))[2:] == paths
    assert len(fk.engine.trainable_weights(fk.freeze(model, "jax_layer"))) == 2
    grads = jax.grad(lambda m: m(x).sum())(model)
    assert all(bool(jnp.abs(g).max() > 0) for g in jax.tree.leaves(grads))


@pytest.mark.exhaustive
def test_updates_are_returned_if_the_function_changes_the_state():
    x = jnp.asarray(_data(4, 5))
    layer = layers.JaxLayer(call_counter, init_counter).build(KEY, x)
    state = layer.init_state(x)
    assert state == {"steps": 0}
    out = layer.apply(x, state=state, training=True, key=KEY)
    assert out.updates == {"steps": 1}
    assert layer.apply(x, state=state).updates == {}
    assert layer(x, state=state).shape == (4, 5)
    with pytest.raises(ValueError, match="key"):
        layer.apply(x, state=state, training=True)


def test_a_given_state_is_the_initial_state_of_the_layer_and_of_its_copies():
    params, state = {"scale": np.ones(5, "float32")}, {"mean": np.float32(3), "steps": np.int32(7)}
    layer = layers.JaxLayer(call_counter, params=params, state=state)
    for copy in (layer, jax.tree.map(lambda leaf: leaf, layer), layer.replace(name="other")):
        initial = copy.init_state(_data(4, 5))
        assert initial == state
        assert {name: value.dtype for name, value in initial.items()} == {
            "mean": "float32",
            "steps": "int32",
        }


@pytest.mark.exhaustive
def test_seeds_and_low_precision():
    x = jnp.zeros((4, 5))
    layer = layers.JaxLayer(call_counter, init_counter).build(KEY, x)
    state = layer.init_state(x)
    first, second = (
        l.apply(x, state=state, training=True, key=KEY).value
        for l in (layer, layer.replace(seed=1))
    )
    assert not np.array_equal(first, second)
    half = layers.JaxLayer(call_counter, init_counter, dtype="mixed_bfloat16").build(KEY, x)
    assert half(x, state=half.init_state(x)).dtype == jnp.bfloat16
    assert {w.dtype for w in jax.tree.leaves(half)} == {jnp.dtype("float32")}


def test_integer_params_are_not_trained():
    def scaled(params, inputs):
        return inputs * params["scale"] ** params["power"]

    layer = layers.JaxLayer(
        scaled, params={"scale": 2.0, "power": 3}, call_arguments=("params", "inputs")
    )
    np.testing.assert_array_equal(layer(np.ones((1, 2), "float32")), [[8.0, 8.0]])
    assert list(fk.engine.trainable_weights(layer)) == ["params/scale/value"]


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: layers.Wrapper(layers.Dense), r"class Dense.*Dense\(\.\.\.\)"),
        (lambda: layers.Wrapper(jnp.sin), r"expected a layer"),
        (lambda: layers.SpectralNormalization(layers.Dense(2), 0), r"power_iterations.*0"),
        (
            lambda: layers.SpectralNormalization(layers.Flatten()).init_state((2, 3)),
            r"'kernel' or 'embeddings'.*Flatten",
        ),
        (lambda: layers.Pipeline(layers.Dense(2)), r"list of layers.*Dense"),
        (lambda: layers.JaxLayer("f"), r"call_fn.*str.*custom_objects"),
        (lambda: layers.JaxLayer(call_other), r"init_fn, params or state.*params and state"),
        (
            lambda: layers.JaxLayer(call_affine, init_affine, call_arguments=("param", "inputs")),
            r"'param'.*Did you mean 'params'",
        ),
        (
            lambda: layers.JaxLayer(call_affine, init_affine, call_arguments=("params",)),
            r"include 'inputs'",
        ),
        (
            lambda: layers.JaxLayer(
                call_affine, init_affine, native_serialization_platforms=("cpu",)
            ),
            r"native_serialization_platforms.*None",
        ),
        (
            lambda: layers.JaxLayer(call_other, init_affine).build(KEY, (2, 5)),
            r"init_fn to return \(params, state\).*dict",
        ),
        (
            lambda: layers.JaxLayer(call_other, init_counter).build(KEY, (2, 5))(
                jnp.ones((2, 5)), state={"steps": jnp.int32(0)}
            ),
            r"\(params, state, rng, inputs, training\).*call_arguments=",
        ),
        (
            lambda: layers.JaxLayer(call_affine, params={"a": "b"}),
            r"pytree of arrays.*str.*'a'",
        ),
        (lambda: layers.FlaxLayer(layers.Dense), r"class Dense"),
        (lambda: layers.FlaxLayer(call_affine), r"init and apply.*JaxLayer"),
    ],
)
def test_error_messages(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_a_state_that_changes_its_structure_is_rejected():
    def grow(params, state, rng, inputs, training):
        return inputs, {**state, "more": state["steps"]}

    x = np.ones((2, 5), "float32")
    layer = layers.JaxLayer(grow, init_counter).build(KEY, x)
    with pytest.raises(ValueError, match=r"keep its structure.*'steps'.*'more'"):
        layer.apply(x, state=layer.init_state(x), training=True, key=KEY)


def _network(nn):
    class Network(nn.Module):
        features: int = 3

        @nn.compact
        def __call__(self, x, train=False):
            x = nn.Dense(self.features)(x)
            x = nn.BatchNorm(use_running_average=not train, momentum=0.5)(x)
            x = nn.Dropout(0.5, deterministic=not train)(x)
            self.sow("intermediates", "features", x)
            return nn.Dense(2)(x)

        def half(self, x):
            return x / 2

    return Network


@pytest.mark.exhaustive
def test_a_flax_layer_computes_the_outputs_of_its_module():
    nn = pytest.importorskip("flax.linen")
    x = jnp.asarray(_data(8, 5))
    module = _network(nn)(4)
    layer = layers.FlaxLayer(module, training_argument="train").build(KEY, x)
    state = layer.init_state(x)
    assert list(state) == [f"batch_stats.BatchNorm_0.{name}" for name in ("mean", "var")]
    params = jax.tree.unflatten(
        layer.params_structure, [parameter.value for parameter in layer.params.values()]
    )
    stats = {"BatchNorm_0": {"mean": jnp.zeros(4), "var": jnp.ones(4)}}
    variables = {"params": params, "batch_stats": stats}
    np.testing.assert_allclose(
        layer(x, state=state), module.apply(variables, x), rtol=1e-5, atol=1e-6
    )
    out = layer.apply(x, state=state, training=True, key=KEY)
    hidden = x @ params["Dense_0"]["kernel"] + params["Dense_0"]["bias"].reshape(1, -1)
    np.testing.assert_allclose(
        out.updates["batch_stats.BatchNorm_0.mean"], 0.5 * hidden.mean(0), rtol=1e-4, atol=1e-6
    )
    again = layer.apply(x, state=state, training=True, key=jax.random.key(1))
    assert not np.array_equal(out.value, again.value)
    from_variables = layers.FlaxLayer(module, variables=variables, training_argument="train")
    np.testing.assert_allclose(
        from_variables(x, state=from_variables.init_state(x)), layer(x, state=state), rtol=1e-5
    )
    grads = jax.grad(lambda l: l.apply(x, state=state, training=True, key=KEY).value.sum())(layer)
    assert bool(jnp.isfinite(jnp.concatenate([g.ravel() for g in jax.tree.leaves(grads)])).all())


@pytest.mark.exhaustive
def test_flax_modules_in_json_and_in_models():
    nn = pytest.importorskip("flax.linen")
    network = _network(nn)
    layer = layers.FlaxLayer(network(4), training_argument="train", seed=3)
    config = layers.serialize(layer)
    assert layers.deserialize(config, custom_objects={"Network": network}) == layer
    with pytest.raises(ValueError, match=r"'Network'.*custom_objects"):
        layers.deserialize(config)
    builtin = layers.FlaxLayer(nn.Sequential([nn.Dense(3), nn.Dense(2, use_bias=False)]))
    assert layers.deserialize(layers.serialize(builtin)) == builtin
    half = layers.FlaxLayer(network(), network.half)
    assert half.method == "half"
    assert layers.deserialize(layers.serialize(half), custom_objects={"Network": network}) == half
    half = half.build(KEY, (2, 5))
    np.testing.assert_array_equal(half(jnp.ones((2, 5))), 0.5)
    model = fk.Sequential([fk.Input((5,)), layer, builtin]).build(KEY)
    state = model.init_state()
    y = jax.jit(lambda m, s, x: m(x, state=s))(model, state, jnp.ones((3, 5)))
    assert y.shape == (3, 2)
    dropout = layers.FlaxLayer(nn.Dropout(0.5), training_argument="not deterministic")
    dropout = dropout.build(KEY, (4, 5))
    values = dropout(jnp.ones((40, 50)), training=True, key=KEY)
    assert sorted(np.unique(values)) == [0.0, 2.0]


def _nnx_network(nnx):
    class Network(nnx.Module):
        def __init__(self, rngs):
            self.first = nnx.Linear(5, 4, rngs=rngs)
            self.norm = nnx.BatchNorm(4, momentum=0.5, rngs=rngs)
            self.drop = nnx.Dropout(0.5, rngs=rngs)
            self.act = nnx.relu

        def __call__(self, x):
            return self.drop(self.norm(self.act(self.first(x))))

        def half(self, x, flag=False):
            return x * 2 if flag else x / 2

    return Network


@pytest.mark.exhaustive
def test_a_flax_layer_computes_a_module_of_nnx():
    nnx = pytest.importorskip("flax.nnx")
    x = jnp.asarray(_data(8, 5))
    module = _nnx_network(nnx)(nnx.Rngs(0))
    layer = layers.FlaxLayer(module)
    state = layer.init_state(x)
    assert list(state) == ["state.norm.mean", "state.norm.var"]
    assert list(layer.params) == ["first.bias", "first.kernel", "norm.bias", "norm.scale"]
    module.eval()
    np.testing.assert_allclose(layer(x, state=state), module(x), rtol=1e-6)
    out = layer.apply(x, state=state, training=True, key=KEY)
    # dropout keeps about half of the entries, and draws by the key of the call
    module.train()
    module(x)
    new = nnx.to_pure_dict(nnx.state(module, nnx.BatchStat))["norm"]
    for name in ("mean", "var"):
        value = out.updates[f"state.norm.{name}"]
        np.testing.assert_allclose(value, new[name], rtol=1e-5, atol=1e-6)
    assert 0 < float((out.value == 0).mean()) < 1
    again = [layer.apply(x, state=state, training=True, key=jax.random.key(n)) for n in (1, 1, 2)]
    np.testing.assert_array_equal(again[0].value, again[1].value)
    assert not np.array_equal(again[0].value, again[2].value)
    # the module given is not changed by the calls of the layer
    np.testing.assert_array_equal(layer.init_state(x)["state.norm.mean"], 0)
    half = layers.FlaxLayer(module, module.half, training_argument="flag")
    np.testing.assert_array_equal(half(x, state=state), x / 2)
    np.testing.assert_array_equal(half.apply(x, state=state, training=True, key=KEY).value, x * 2)


@pytest.mark.exhaustive
def test_modules_of_nnx_train_and_keep_their_weights(tmp_path):
    nnx = pytest.importorskip("flax.nnx")
    x = _data(8, 5)
    inputs = fk.Input((5,))
    layer = layers.FlaxLayer(_nnx_network(nnx)(nnx.Rngs(0)), name="net")
    model = fk.Model(inputs, layers.Dense(2)(layer(inputs))).build(KEY)
    trainer = fk.Trainer(fk.optimizers.SGD(0.1), "mse")
    run = trainer.init(model, KEY)
    run, _ = trainer.fit(run, x, x[:, :2], epochs=2, verbose=0)
    assert float(abs(run.state["net"]["state.norm.mean"]).max()) > 0
    assert not np.array_equal(
        run.model.layers["net"].params["first.kernel"].value, layer.params["first.kernel"].value
    )
    fk.save_weights(tmp_path / "w.npz", run.model, run.state)
    again, state = fk.load_weights(tmp_path / "w.npz", model)
    np.testing.assert_array_equal(again(x, state=state), run.model(x, state=run.state))
    plain = layers.FlaxLayer(nnx.Linear(5, 2, rngs=nnx.Rngs(0)))
    assert not plain.draws
    assert not plain.stateful
    assert hash(plain) == hash(layers.FlaxLayer(nnx.Linear(5, 2, rngs=nnx.Rngs(1))))
    with pytest.raises(TypeError, match="no JSON form"):
        fk.save_model(tmp_path / "m.keras", run.model, run.state)
    with pytest.raises(ValueError, match="weights from its constructor"):
        fk.engine.unbuilt(model).build(KEY)
    with pytest.raises(ValueError, match="variables: expected None"):
        layers.FlaxLayer(nnx.Linear(5, 2, rngs=nnx.Rngs(0)), variables={})


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LikeEquinox:
    """A callable pytree of arrays and functions, for one row, as modules of Equinox are."""

    weight: jax.Array
    act: object

    def __call__(self, x):
        return self.act(self.weight @ x)


def test_a_module_that_is_a_pytree_is_split_and_merged():
    module = LikeEquinox(jax.device_put(_data(2, 5)), jnp.tanh)
    # equinox.partition and equinox.combine do the same
    leaves, structure = jax.tree.flatten(module)
    params = [leaf if isinstance(leaf, jax.Array) else None for leaf in leaves]
    rest = [None if isinstance(leaf, jax.Array) else leaf for leaf in leaves]

    def call(params, inputs):
        pairs = zip(params, rest, strict=True)
        merged = jax.tree.unflatten(structure, [r if p is None else p for p, r in pairs])
        return jax.vmap(merged)(inputs)

    layer = layers.JaxLayer(call, params=params)
    x = _data(3, 5)
    np.testing.assert_allclose(layer(x), np.tanh(x @ np.asarray(module.weight).T), rtol=1e-5)
    assert [p.value.shape for p in layer.params.values()] == [(2, 5)]


def test_an_argument_with_the_name_training_is_found_as_in_keras():
    nn = pytest.importorskip("flax.linen")

    class Dropped(nn.Module):
        @nn.compact
        def __call__(self, x, training=False):
            return nn.Dropout(0.5, deterministic=not training)(x)

        def plain(self, x):
            return self(x)

    def unbound(module, x, training):
        return module(x, training)

    @jax.jit
    def compute(x):
        built = [layers.FlaxLayer(Dropped(), m).build(KEY, x) for m in (None, unbound, "plain")]
        return [(layer(x), layer.apply(x, training=True, key=KEY).value) for layer in built]

    x = np.ones((8, 20), "float32")
    for (y, out), changes in zip(jax.device_get(compute(x)), (True, True, False), strict=True):
        np.testing.assert_array_equal(y, x)
        assert (out == 0).any() == changes
    assert "training_argument" not in layers.FlaxLayer(Dropped()).get_config()


def test_a_missing_training_argument_is_reported():
    nn = pytest.importorskip("flax.linen")

    class Strict(nn.Module):
        @nn.compact
        def __call__(self, x, train):
            return nn.Dropout(0.5, deterministic=not train)(x)

    with pytest.raises(TypeError, match="'train'") as caught:
        layers.FlaxLayer(Strict()).build(KEY, (2, 5))
    assert "training_argument='train'" in "".join(caught.value.__notes__)


@pytest.mark.exhaustive
def test_a_haiku_transform_is_a_layer():
    haiku = pytest.importorskip("haiku")
    module = haiku.transform(lambda x: haiku.Linear(3)(x))
    with keras_rules():  # haiku relies on JAX's usual promotion
        layer = layers.JaxLayer(
            module.apply, module.init, call_arguments=("params", "rng", "inputs")
        ).build(KEY, (None, 5))
        assert list(layer.params) == ["linear.b", "linear.w"]
        x = _data(2, 5)
        y = layer(x)
        w, b = layer.params["linear.w"].value, layer.params["linear.b"].value
        np.testing.assert_allclose(y, x @ w + b, rtol=1e-5)


@pytest.mark.exhaustive
def test_a_frozen_spectral_normalization_keeps_its_vector():
    """Keras moves the vector of a frozen layer, too, so that the frozen kernel changes."""
    layer = layers.SpectralNormalization(layers.Dense(3), trainable=False)
    layer = layer.build(jax.random.key(0), (None, 4))
    state = layer.init_state((None, 4))
    assert layer.apply(jnp.ones((2, 4)), state=state, training=True).updates == {}
    with keras_rules():
        theirs = keras.layers.SpectralNormalization(keras.layers.Dense(3))
        theirs.build((None, 4))
        theirs.trainable = False
        before = np.asarray(theirs.vector_u)
        theirs(np.ones((2, 4), "float32"), training=True)
        assert not np.allclose(theirs.vector_u, before)
