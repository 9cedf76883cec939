"""Folded models: equal values, what leaves, and the reasons for what stays."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers, transforms
from fkeras.engine.call.node import record
from fkeras.engine.symbolic.operators import KerasTensor
from tests.support.keras_oracle import keras
from tools.stress import applications

enable_x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64
KEY = jax.random.key(0)
IMAGE = (6, 5, 3)


def statistics(state, seed=0):
    """A state with other moving means and variances."""
    rng = np.random.default_rng(seed)

    def draw(path, array):
        low = 0.5 if "variance" in path[-1].key else -0.5
        return jax.device_put(rng.uniform(low, low + 1, array.shape).astype(array.dtype))

    return jax.tree_util.tree_map_with_path(draw, state)


def weights(model, seed=1):
    """The model with random weights, also for gamma, beta and bias."""
    leaves, structure = jax.tree.flatten(model)
    rng = np.random.default_rng(seed)
    draws = [rng.uniform(-1, 1, leaf.shape).astype(leaf.dtype) for leaf in leaves]
    return jax.tree.unflatten(structure, jax.device_put(draws))


def built(model):
    model = weights(model.build(KEY))
    return model, statistics(model.init_state())


def chain(shape, *entries):
    return built(fk.Sequential([fk.Input(shape), *entries]))


def batch(model, rows=2):
    rng = np.random.default_rng(2)
    arrays = [rng.normal(size=(rows, *x.shape[1:])) for x in jax.tree.leaves(model.inputs)]
    arrays = [a.astype(x.dtype) for a, x in zip(arrays, jax.tree.leaves(model.inputs), strict=True)]
    return arrays if len(arrays) > 1 else arrays[0]


def check(model, state, rtol=1e-5):
    """Folds, compares the values, and returns the result."""
    folded, rest = transforms.fold(model, state)
    x = batch(model)
    before, after = model(x, state=state), folded(x, state=rest)
    for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(b, a, rtol=0, atol=rtol * float(np.abs(a).max()))
    assert transforms.fold(folded, rest)[0] == folded
    return folded, rest


def names(model):
    return list(model.layers)[1:]


KINDS = {
    "dense": ((5,), lambda **k: layers.Dense(4, **k)),
    "dense of sequences": ((3, 5), lambda **k: layers.Dense(4, **k)),
    "conv1d": ((7, 3), lambda **k: layers.Conv1D(4, 3, padding="causal", **k)),
    "conv2d": (IMAGE, lambda **k: layers.Conv2D(4, 3, strides=2, padding="same", **k)),
    "grouped": ((6, 5, 4), lambda **k: layers.Conv2D(6, 2, groups=2, **k)),
    "conv3d": ((4, 4, 4, 2), lambda **k: layers.Conv3D(3, 2, **k)),
    "depthwise1d": ((7, 3), lambda **k: layers.DepthwiseConv1D(3, depth_multiplier=2, **k)),
    "depthwise2d": (IMAGE, lambda **k: layers.DepthwiseConv2D(2, depth_multiplier=3, **k)),
    "separable1d": ((7, 3), lambda **k: layers.SeparableConv1D(4, 3, **k)),
    "separable2d": (IMAGE, lambda **k: layers.SeparableConv2D(4, 2, depth_multiplier=2, **k)),
    "transposed1d": ((5, 3), lambda **k: layers.Conv1DTranspose(4, 3, strides=2, **k)),
    "transposed2d": (IMAGE, lambda **k: layers.Conv2DTranspose(4, 3, strides=2, **k)),
    "transposed3d": ((3, 3, 3, 2), lambda **k: layers.Conv3DTranspose(4, 2, **k)),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("use_bias", [True, False])
def test_normalizations_leave(kind, use_bias):
    shape, make = KINDS[kind]
    norm = layers.BatchNormalization(center=use_bias, scale=not use_bias, epsilon=0.1)
    model, state = chain(shape, make(use_bias=use_bias, name="affine"), norm)
    folded, rest = check(model, state)
    assert names(folded) == ["affine"] and rest == {}
    assert transforms.unfolded(model, state) == ()
    assert "affine" in model.layers and len(state) == 1  # the model before stays


@pytest.mark.exhaustive
def test_float64_is_exact_to_its_digits():
    with enable_x64(True):
        model, state = chain(
            IMAGE, layers.Conv2D(4, 3, dtype="float64"), layers.BatchNormalization(dtype="float64")
        )
        folded, _ = check(model, state, rtol=1e-14)
        assert folded.layers["conv2d"].kernel.dtype == "float64"


@pytest.mark.exhaustive
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "bfloat16"])
def test_half_precision(policy):
    entries = layers.Conv2D(4, 3, dtype=policy), layers.BatchNormalization(dtype=policy)
    model, state = chain(IMAGE, *entries)
    folded, rest = transforms.fold(model, state)
    assert names(folded) == ["conv2d"]
    assert folded.layers["conv2d"].kernel.dtype == model.layers["conv2d"].kernel.dtype
    x = batch(model)
    np.testing.assert_allclose(
        np.asarray(folded(x), "float32"), np.asarray(model(x, state=state), "float32"), atol=0.1
    )


@pytest.mark.exhaustive
def test_channels_first():
    conv = layers.Conv2D(4, 3, data_format="channels_first")
    model, state = chain((3, 6, 5), conv, layers.BatchNormalization(axis=1))
    assert names(check(model, state)[0]) == ["conv2d"]


@pytest.mark.exhaustive
def test_a_normalization_of_two_layers():
    x, norm = fk.Input((4,)), layers.BatchNormalization()
    ys = [norm(layers.Dense(4)(x)), norm(layers.Dense(4, "relu", name="other")(x))]
    folded, rest = check(*built(fk.Model(x, ys[0])))
    assert names(folded) == ["dense"] and rest == {}
    model, state = built(fk.Model(x, ys))
    folded, rest = check(model, state)
    assert set(rest) == {"batch_normalization"}
    (call,) = transforms.unfolded(model, state)
    assert call[:2] == ("batch_normalization", 1)


@pytest.mark.exhaustive
def test_normalizations_in_a_row():
    model, state = chain(
        (5,),
        *(layers.Dense(4), layers.Dropout(0.5), layers.BatchNormalization()),
        *(layers.Activation("linear"), layers.BatchNormalization(axis=1), layers.ReLU()),
    )
    assert names(check(model, state)[0]) == ["dense", "re_lu"]


@pytest.mark.exhaustive
def test_penalties_and_constraints_leave_with_the_weights_that_they_belong_to():
    dense = layers.Dense(4, kernel_regularizer="l2", bias_constraint="non_neg")
    model, state = chain((5,), dense, layers.BatchNormalization(beta_regularizer="l1"))
    folded = check(model, state)[0].layers["dense"]
    assert folded.kernel_regularizer is None and folded.bias_constraint is None
    assert model.layers["dense"].kernel_regularizer is not None


class MyDense(layers.Dense):
    pass


class MyNorm(layers.BatchNormalization):
    pass


def shared():
    x, dense = fk.Input((4,)), layers.Dense(4, name="a")
    one = layers.BatchNormalization(name="one")(dense(x))
    return fk.Model(x, layers.BatchNormalization(name="two")(dense(one)))


def second_consumer():
    x = fk.Input((4,))
    y = layers.Dense(4, name="a")(x)
    return fk.Model(x, layers.Add(name="add")([layers.BatchNormalization(name="one")(y), y]))


def normalized_twice():
    x, norm = fk.Input((4,)), layers.BatchNormalization(name="one")
    y = layers.Dense(4, name="a")(x)
    return fk.Model(x, layers.Add(name="add")([norm(y), norm(y)]))


def second_output():
    x = fk.Input((4,))
    y = layers.Dropout(0.1)(layers.Dense(4, name="a")(x))
    return fk.Model(x, [y, layers.BatchNormalization(name="one")(y)])


def pinned():
    x = fk.Input((4,))
    y = layers.Dense(4, name="a")(x)
    return fk.Model(x, layers.BatchNormalization(name="one")(y, training=True))


def behind(layer, shape=(4,), **options):
    norm = layers.BatchNormalization(name="one", **options)
    return fk.Sequential([fk.Input(shape), layer, norm])


STAY = {
    "a shared layer": (shared, ["one", "two"], "'a' is called 2 times"),
    "a second consumer": (second_consumer, ["one"], "is also used by 'add'"),
    "two calls": (normalized_twice, ["one", "one"], "is also used by 'one'"),
    "an output": (second_output, ["one"], "is also used by the outputs of the model"),
    "training": (pinned, ["one"], "is called with training=True"),
    "an activation": (lambda: behind(layers.Dense(4, "relu")), ["one"], "has an activation"),
    "a layer between": (
        lambda: behind(layers.ReLU()),
        ["one"],
        "neither a convolution nor a Dense",
    ),
    "an input": (lambda: behind(layers.Dropout(0.1)), ["one"], "class InputLayer is neither"),
    "another axis": (
        lambda: behind(layers.Dense(4), (3, 4), axis=1),
        ["one"],
        "it normalizes axis 1, and axis -1 has the channels of 'dense'",
    ),
    "another axis of images": (
        lambda: behind(layers.Conv2D(4, 2, data_format="channels_first"), (3, 4, 4)),
        ["one"],
        "it normalizes axis -1, and axis 1 has",
    ),
    "a subclass": (lambda: behind(MyDense(4)), ["one"], "class MyDense is a subclass"),
    "a normalization's subclass": (
        lambda: fk.Sequential([fk.Input((4,)), layers.Dense(4), MyNorm(name="one")]),
        ["one"],
        "its class MyNorm is a subclass",
    ),
    "other dtypes": (
        lambda: behind(layers.Dense(4, dtype="mixed_bfloat16")),
        ["one"],
        "it computes in float32, and 'dense' in bfloat16",
    ),
}


@pytest.mark.one_in(7)
@pytest.mark.parametrize("case", STAY)
def test_normalizations_that_stay(case):
    make, stay, reason = STAY[case]
    model = weights(make().build(KEY))
    state = statistics(model.init_state())
    kept = transforms.unfolded(model, state)
    assert [call.path for call in kept] == stay
    assert all(reason in str(call) for call in kept)
    folded, rest = transforms.fold(model, state)
    assert set(rest) == set(state)
    for name in stay:
        assert folded.layers[name] is model.layers[name]
    if case != "training":
        check(model, state)


def test_quantized_and_unbuilt_layers_stay():
    model, state = chain((4,), layers.Dense(4), layers.BatchNormalization(name="one"))
    (call,) = transforms.unfolded(fk.quantize(model, "int8"), state)
    assert call.path == "one" and "'dense' has quantized weights" in call.reason
    unbuilt = behind(layers.Dense(4))
    (call,) = transforms.unfolded(unbuilt, unbuilt.init_state())
    assert "'one' has no weights: build the model first" in call.reason


def test_statistics_without_finite_factors_stay():
    model, state = chain((4,), layers.Dense(4), layers.BatchNormalization(epsilon=0, name="one"))
    state["one"]["moving_variance"] = np.zeros(4, "float32")
    assert "not finite in float32" in transforms.unfolded(model, state)[0].reason
    assert transforms.fold(model, state)[0] == model


IDENTITIES = {
    "dropout": ((4,), lambda: layers.Dropout(0.5)),
    "gaussian dropout": ((4,), lambda: layers.GaussianDropout(0.5)),
    "alpha dropout": ((4,), lambda: layers.AlphaDropout(0.5)),
    "noise": ((4,), lambda: layers.GaussianNoise(0.5)),
    "spatial dropout": (IMAGE, lambda: layers.SpatialDropout2D(0.5)),
    "identity": ((4,), lambda: layers.Identity()),
    "linear": ((4,), lambda: layers.Activation("linear")),
    "penalty": ((4,), lambda: layers.ActivityRegularization(0.1)),
    "flip": (IMAGE, lambda: layers.RandomFlip()),
    "rotation": (IMAGE, lambda: layers.RandomRotation(0.1)),
    "open sizes": ((None, None, 3), lambda: layers.RandomContrast(0.1)),
    "same shape": ((4,), lambda: layers.Flatten()),
    "same axes": ((3, 4), lambda: layers.Permute((1, 2))),
}


@pytest.mark.one_in(5)
@pytest.mark.parametrize("case", IDENTITIES)
def test_identities_leave(case):
    shape, make = IDENTITIES[case]
    model = fk.Sequential([fk.Input(shape), layers.ReLU(), make(), layers.ELU()])
    folded, rest = transforms.fold(model, {})
    assert names(folded) == ["re_lu", "elu"] and rest == {}
    assert isinstance(folded, fk.Sequential)


class Watched(fk.Layer):
    def forward(self, context, x):
        return fk.Output(x, metrics={"mean": x.mean()})


@pytest.mark.parametrize(
    "layer", [Watched(), layers.Masking(), layers.CenterCrop(4, 4), layers.Rescaling(1.0)]
)
def test_layers_that_compute_or_report_stay(layer):
    model = fk.Sequential(
        [fk.Input(IMAGE[1:] if isinstance(layer, layers.Masking) else IMAGE), layer]
    )
    assert transforms.fold(model, {})[0] == model


def test_a_cast_stays():
    model = fk.Sequential([fk.Input(IMAGE, dtype="uint8"), layers.RandomFlip(), layers.ReLU()])
    assert names(transforms.fold(model, {})[0]) == ["random_flip", "re_lu"]


def test_dropout_in_training_mode_stays():
    x = fk.Input((4,))
    model = fk.Model(x, layers.Dropout(0.5, name="drop")(x, training=True))
    assert transforms.unfolded(model, {}) == (("drop", 0, "is called with training=True"),)
    assert transforms.fold(model, {})[0] == model


@pytest.mark.exhaustive
def test_masks_pass_identities():
    x = fk.Input((5,), dtype="int32")
    y = layers.Embedding(9, 4, mask_zero=True)(x)
    y = layers.BatchNormalization()(layers.Dense(4)(layers.Dropout(0.1)(y)))
    model = fk.Model(x, layers.LSTM(3)(y)).build(KEY)
    state = statistics(model.init_state())
    folded, rest = transforms.fold(model, state)
    ids = np.array([[1, 2, 0, 0, 0], [3, 4, 5, 6, 0]])
    np.testing.assert_allclose(folded(ids, state=rest), model(ids, state=state), atol=1e-6)
    assert names(folded) == ["embedding", "dense", "lstm"]


PADS = {
    "same": ((6, 6, 3), 1, lambda: layers.Conv2D(2, 3), "same"),
    "dilated": ((7, 7, 3), 2, lambda: layers.Conv2D(2, 3, dilation_rate=2), "same"),
    "strides": ((6, 6, 3), ((0, 1), (0, 1)), lambda: layers.DepthwiseConv2D(3, 2), "same"),
    "open": ((None, None, 3), 1, lambda: layers.SeparableConv2D(2, 3), "same"),
    "odd": ((7, 7, 3), 1, lambda: layers.Conv2D(2, 3, 2), "same"),
}


@pytest.mark.one_in(5)
@pytest.mark.parametrize("case", PADS)
def test_paddings_leave(case):
    shape, pads, make, padding = PADS[case]
    x = fk.Input(shape)
    model = fk.Model(x, make()(layers.ZeroPadding2D(pads)(x)))
    folded, _ = transforms.fold(model.build(KEY), {})
    (name,) = names(folded)
    assert folded.layers[name].padding == padding
    if None not in shape:
        check(*built(model))


@pytest.mark.exhaustive
def test_causal_padding():
    conv = layers.Conv1D(2, 3, dilation_rate=2, strides=1)
    model, state = chain((8, 3), layers.ZeroPadding1D((4, 0)), conv, layers.BatchNormalization())
    folded, _ = check(model, state)
    assert names(folded) == ["conv1d"] and folded.layers["conv1d"].padding == "causal"


class MyConv(layers.Conv2D):
    pass


PADS_STAY = {
    "asymmetric": (
        ((8, 8, 3), 1, lambda: layers.Conv2D(2, 3, 2)),
        "it pads ((1, 1), (1, 1)), which 'conv' cannot: 'same' pads ((0, 1), (0, 1))",
    ),
    "open": (((None, None, 3), 1, lambda: layers.Conv2D(2, 3, 2)), "which is open"),
    "padded": (((8, 8, 3), 1, lambda: layers.Conv2D(2, 3, padding="same")), "'conv' pads too"),
    "formats": (
        ((3, 8, 8), 1, lambda: layers.Conv2D(2, 3, data_format="channels_first")),
        "it pads channels_last, and 'conv' reads channels_first",
    ),
}


@pytest.mark.parametrize("case", PADS_STAY)
def test_paddings_that_stay(case):
    (shape, pads, make), reason = PADS_STAY[case]
    x = fk.Input(shape)
    padded = layers.ZeroPadding2D(pads, name="pad")(x)
    model = fk.Model(x, make().replace(name="conv")(padded)).build(KEY)
    (call,) = transforms.unfolded(model, {})
    assert call.path == "pad" and reason in call.reason
    assert transforms.fold(model, {})[0] == model


def test_paddings_of_shared_and_custom_convolutions_stay():
    x, conv = fk.Input((6, 6, 3)), layers.Conv2D(3, 3, name="conv")
    one = conv(layers.ZeroPadding2D(1, name="pad")(x))
    model = fk.Model(x, conv(one)).build(KEY)
    (call,) = transforms.unfolded(model, {})
    assert call[:2] == ("pad", 0) and call.reason == "'conv' is called 2 times"
    custom = fk.Sequential([fk.Input((6, 6, 3)), layers.ZeroPadding2D(name="pad"), MyConv(2, 3)])
    (call,) = transforms.unfolded(custom.build(KEY), {})
    assert "is a subclass" in call.reason


SHAPES = {
    "transpositions": (
        (2, 3, 4),
        [layers.Permute((2, 3, 1)), layers.Permute((3, 2, 1))],
        ["permute_1"],
    ),
    "inverse": ((2, 3, 4), [layers.Permute((2, 3, 1)), layers.Permute((3, 1, 2))], []),
    "reshapes": ((2, 6), [layers.Reshape((3, -1)), layers.Reshape((2, 2, 3))], ["reshape_1"]),
    "back": ((2, 6), [layers.Reshape((3, -1)), layers.Reshape((2, 6))], []),
    "flatten": ((2, 6), [layers.Reshape((3, 4)), layers.Flatten()], ["flatten"]),
    "three": ((2, 6), [layers.Flatten(), layers.Reshape((3, 4)), layers.Flatten()], ["flatten_1"]),
    "order changes": (
        (2, 3, 4),
        [layers.Flatten("channels_first"), layers.Reshape((4, 6))],
        ["flatten", "reshape"],
    ),
    "order changes later": (
        (2, 12),
        [layers.Reshape((2, 3, 4)), layers.Flatten("channels_first")],
        ["reshape", "flatten"],
    ),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", SHAPES)
def test_transpositions_and_reshapes_merge(case):
    shape, entries, left = SHAPES[case]
    model, state = chain(shape, layers.ReLU(), *entries, layers.ELU())
    assert names(check(model, state)[0]) == ["re_lu", *left, "elu"]


@pytest.mark.exhaustive
def test_a_shared_transposition_merges_under_another_name():
    x, swap = fk.Input((2, 3, 4)), layers.Permute((2, 1, 3), name="swap")
    y = layers.Permute((3, 1, 2))(x)
    model = fk.Model(x, [swap(y), swap(layers.ReLU()(x))])
    folded, _ = check(model, {})
    assert {"swap", "swap_1"} <= set(folded.layers)


def block(name, **options):
    entries = [
        layers.Conv2D(3, 3, padding="same", name="conv"),
        layers.BatchNormalization(name="bn"),
    ]
    return fk.Sequential([fk.Input((6, 6, 3)), *entries, layers.Dropout(0.1)], name=name, **options)


@pytest.mark.exhaustive
def test_nested_networks_that_are_called_twice():
    x, encoder = fk.Input((6, 6, 3)), block("encoder")
    y = encoder(encoder(x))
    model, state = built(fk.Model(x, layers.BatchNormalization(name="outer")(y)))
    folded, rest = check(model, state, 1e-4)
    assert isinstance(folded.layers["encoder"], fk.Sequential)
    assert names(folded.layers["encoder"]) == ["conv"] and set(rest) == {"outer"}
    (call,) = transforms.unfolded(model, state)
    assert call.path == "outer" and "class Sequential" in call.reason


@pytest.mark.exhaustive
def test_networks_in_networks_and_in_time_distributed_layers():
    x = fk.Input((2, 6, 6, 3))
    inner = fk.Sequential([fk.Input((6, 6, 3)), block("block"), layers.ReLU()], name="inner")
    model, state = built(fk.Model(x, layers.TimeDistributed(inner, name="steps")(x)))
    folded, rest = check(model, state)
    assert names(folded.layers["steps"].layer.layers["block"]) == ["conv"] and rest == {}


@pytest.mark.exhaustive
def test_nested_networks_in_training_mode_stay():
    x, encoder = fk.Input((6, 6, 3)), block("encoder")
    model, state = built(fk.Model(x, encoder(encoder(x), training=True)))
    assert transforms.unfolded(model, state) == (("encoder", 1, "is called with training=True"),)
    folded, rest = transforms.fold(model, state)
    assert folded == model and jax.tree.structure(rest) == jax.tree.structure(state)


class Doubled(layers.Wrapper):
    def forward(self, context, x):
        inner = super().forward(context, x)
        return fk.Output(2 * inner.value, updates=inner.updates)


def test_networks_that_a_custom_layer_calls_stay():
    model, state = chain((6, 6, 3), Doubled(block("block"), name="doubled"))
    (call,) = transforms.unfolded(model, state)
    assert call == ("doubled", 0, "calls the layers inside in a way of its own")
    folded, rest = transforms.fold(model, state)
    assert folded == model and jax.tree.structure(rest) == jax.tree.structure(state)


@pytest.mark.exhaustive
def test_a_nested_network_of_identities():
    inner = fk.Sequential([fk.Input((4,)), layers.Dropout(0.1)], name="inner")
    model, state = chain((4,), layers.Dense(4), inner, layers.ReLU())
    check(model, state)


@pytest.mark.exhaustive
def test_calls_on_constants_become_constants():
    x = fk.Input((2, 4))
    table = layers.Embedding(2, 4, name="positions").build(KEY, (None,))
    rows = record(table, (jnp.arange(2)[None],), {}, kind=KerasTensor)
    rows = layers.ReLU(name="relu")(layers.Dropout(0.1)(rows))
    model = fk.Model(x, [layers.Add(name="add")([x, rows]), x])
    folded, _ = check(model, {})
    assert names(folded) == ["add"]
    # an output stays
    assert "relu" in check(fk.Model(x, [layers.Add()([x, rows]), rows]), {})[0].layers


@pytest.mark.exhaustive
def test_the_run_of_a_trainer():
    model = fk.Sequential(
        [fk.Input((4,)), layers.Dense(3), layers.BatchNormalization(), layers.ReLU()]
    )
    trainer = fk.Trainer(optimizer="sgd", loss="mse")
    run = trainer.init(model, KEY)
    x = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")
    run, _ = trainer.fit(run, x, np.ones((8, 3), "float32"), verbose=0)
    folded, state = transforms.fold(run.model, run.state)
    assert state == {} and names(folded) == ["dense", "re_lu"]
    np.testing.assert_allclose(folded(x), run.model(x, state=run.state), atol=1e-5)


@pytest.mark.exhaustive
def test_a_folded_model_in_keras(tmp_path):
    x = fk.Input((6, 6, 3))
    y = block("encoder")(x)
    y = layers.SeparableConv2D(4, 3, use_bias=False)(layers.ZeroPadding2D(1)(y))
    y = layers.Permute((2, 1, 3))(layers.Permute((3, 1, 2))(layers.BatchNormalization()(y)))
    model, state = built(fk.Model(x, layers.Flatten()(layers.Reshape((4, -1))(y))))
    folded, rest = check(model, state)
    fk.save_model(tmp_path / "m.keras", folded, rest)
    images = batch(model)
    expected = model(images, state=state)
    theirs = keras.saving.load_model(tmp_path / "m.keras")(images)
    np.testing.assert_allclose(theirs, expected, atol=1e-5 * float(jnp.abs(expected).max()))
    loaded, rest = fk.load_model(tmp_path / "m.keras")
    np.testing.assert_allclose(loaded(images, state=rest), folded(images), atol=1e-6)


def test_constants_of_a_folded_model_in_a_file(tmp_path):
    x = fk.Input((2, 4))
    rows = record(layers.ReLU(name="relu"), (np.ones((1, 2, 4), "float32"),), {}, kind=KerasTensor)
    folded, _ = transforms.fold(fk.Model(x, layers.Add(name="add")([x, rows])), {})
    fk.save_model(tmp_path / "m.keras", folded)
    images = batch(folded)
    np.testing.assert_array_equal(fk.load_model(tmp_path / "m.keras")[0](images), images + 1)


@pytest.mark.exhaustive
def test_folded_models_are_quantized():
    model, state = chain(
        (64,), layers.Dense(64), layers.BatchNormalization(), layers.ReLU(), layers.Dense(8)
    )
    folded, _ = transforms.fold(model, state)
    x = batch(model)
    expected = model(x, state=state)
    codes = fk.quantize(folded, "int8")
    assert codes.layers["dense"].kernel.dtype == "int8"
    error = float(jnp.abs(codes(x) - expected).max() / jnp.abs(expected).max())
    assert 0 < error < 0.02


@pytest.mark.exhaustive
def test_repeated_blocks_stay_one_loop():
    entries = [
        part
        for _ in range(9)
        for part in (layers.Dense(4), layers.BatchNormalization(), layers.Activation("tanh"))
    ]
    model, state = chain((4,), *entries)
    folded, _ = check(transforms.roll(model), state, 1e-4)
    assert folded.graph.depth == "scan" and len(names(folded)) == 18


def test_values_that_fold_rejects():
    model, state = chain((4,), layers.Dense(3), layers.BatchNormalization(name="bn"))
    with pytest.raises(ValueError, match="moving_mean of 'bn' in the state, .* received none"):
        transforms.fold(model, {})
    with pytest.raises(ValueError, match=r"with the shape \(3,\), received \(5,\)"):
        transforms.fold(model, {"bn": {"moving_mean": np.ones(5), "moving_variance": np.ones(5)}})
    with pytest.raises(ValueError, match="moving_variance of 'bn' in the state"):
        transforms.fold(model, {"bn": {"moving_mean": np.ones(3)}})
    with pytest.raises(TypeError, match="expected the state of the model as a dictionary"):
        transforms.fold(model, None)
    with pytest.raises(TypeError, match="expected a model, received a tuple"):
        transforms.fold((model, state), {})
    with pytest.raises(fk.FKerasError, match="expected a model with a graph, received"):
        transforms.fold(model.layers["dense"], {})
    with pytest.raises(fk.FKerasError, match="no graph to rewrite"):
        transforms.fold(fk.Sequential([layers.Dense(3)]), {})
    with pytest.raises(fk.FKerasError, match="received a traced array"):
        jax.jit(lambda model, x: transforms.fold(model, state)[0](x))(model, batch(model))


# so deep that with variances below 1 a change of the inputs by 1e-14 changes all outputs in float64
DEEP = ("EfficientNetV2M", "EfficientNetV2L")


def application(name, size, dtype="float32"):
    model = getattr(fk.applications, name)(
        weights=None, input_shape=(size, size, 3), classes=7, classifier_activation=None
    )
    text = json.dumps(layers.serialize(model)).replace('"float32"', f'"{dtype}"')
    model = fk.layers.deserialize(json.loads(text)).build(KEY)
    rng = np.random.default_rng(0)

    def draw(path, array):
        least = 4 if name in DEEP else 0.8
        low = least if "variance" in path[-1].key else -0.1
        return jnp.asarray(rng.uniform(low, low + 0.2, array.shape), array.dtype)

    return model, jax.tree_util.tree_map_with_path(draw, model.init_state())


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["MobileNetV2", "ResNet50"])
def test_applications(name):
    model, state = application(name, 32)
    folded, rest = check(model, state, 1e-4)
    assert rest == {}
    assert not any(isinstance(x, layers.BatchNormalization) for x in folded.layers.values())


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", applications.NAMES)
@pytest.mark.parametrize(("dtype", "rtol"), [("float32", 1e-4), ("float64", 1e-5)])
def test_all_applications(name, dtype, rtol):
    with enable_x64(dtype == "float64"):
        model, state = application(name, applications.SIZES.get(name, 32), dtype)
        assert model.outputs.dtype == dtype
        check(model, state, rtol)
