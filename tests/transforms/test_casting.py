"""`fk.cast`: weights and dtype policies of a model together."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from tests.support.keras_oracle import keras, keras_rules

X = np.random.default_rng(0).normal(size=(2, 5, 4)).astype("float32")


class Net(fk.Model):
    body: fk.Layer = layers.Dense(3)

    def call(self, x):
        return layers.Dense(2)(self.body(x))


def nested():
    x = fk.Input((5, 4))
    y = layers.TimeDistributed(layers.Dense(4))(x)
    block = fk.Model(x, layers.Activation("relu")(layers.MultiHeadAttention(2, 2)(x, x)))
    y = layers.Bidirectional(layers.LSTM(3))(block(y) + block(x))
    return fk.Model(x, y).build(jax.random.key(0))


def recurrent():
    return fk.Sequential([layers.Dense(2), layers.RNN(layers.LSTMCell(3))])


def wrapped():
    return layers.TimeDistributed(layers.Dense(2))


@pytest.mark.exhaustive
@pytest.mark.parametrize("make", [nested, Net, recurrent, wrapped])
def test_weights_policies_and_results(make):
    model = make()
    model = model if model.built else model.build(jax.random.key(0), (2, 5, 4))
    half = fk.cast(model, "bfloat16")
    assert {w.dtype.name for w in jax.tree.leaves(half)} == {"bfloat16"}
    inside = [
        one
        for _, one in fk.engine.sublayers(half)
        if not isinstance(one, fk.engine.Network | fk.engine.InputLayer)
    ]
    assert {one.dtype.name for one in inside} == {"bfloat16"}
    if isinstance(half, fk.Model):
        assert half.outputs.dtype == "bfloat16"
    y = half(X)
    assert y.dtype == "bfloat16"
    # three roundings to 8 bits
    assert float(abs(y.astype("float32") - model(X)).max()) < 0.05
    mixed = fk.cast(model, "mixed_bfloat16")
    assert {w.dtype.name for w in jax.tree.leaves(mixed)} == {"float32"}
    assert mixed(X).dtype == "bfloat16"
    assert (fk.cast(mixed, "float32")(X) == model(X)).all()


def test_equal_blocks_keep_their_weights():
    x = h = fk.Input((4,))
    for _ in range(3):
        y = fk.Input((4,))
        h = fk.Model(y, layers.Add()([y, layers.Dense(4, "tanh")(y)]))(h)
    model = fk.Model(x, h).build(jax.random.key(0))
    mixed = fk.cast(model, "mixed_bfloat16")
    for new, old in zip(jax.tree.leaves(mixed), jax.tree.leaves(model), strict=True):
        assert (new == old).all()
    assert (fk.cast(mixed, "float32")(X[:, 0]) == model(X[:, 0])).all()


@pytest.mark.exhaustive
def test_shared_and_unbuilt_layers():
    model = nested()
    half = fk.cast(model, "float16")
    assert list(half.layers) == list(model.layers)
    assert half.count_params() == model.count_params()
    layer = fk.cast(layers.Dense(2), fk.DTypePolicy("float16"))
    assert layer.build(jax.random.key(0), (None, 3)).kernel.dtype == "float16"


def test_declared_dtypes_stay():
    x = fk.Input((4,))
    model = fk.Model(x, layers.Dense(3, name="a")(x)).build(jax.random.key(0))
    quantized = fk.quantize(model, "int8")
    half = fk.cast(quantized, "bfloat16")
    ones = jnp.ones((1, 4))
    assert half(ones).dtype == "bfloat16" and "int8" in {
        w.dtype.name for w in jax.tree.leaves(half)
    }
    assert float(abs(half(ones).astype("float32") - quantized(ones)).max()) < 0.05
    integers = fk.Sequential([layers.IntegerLookup(vocabulary=[3], dtype="int32")])
    assert fk.cast(integers, "float16") == integers


@pytest.mark.exhaustive
def test_trained_and_saved(tmp_path):
    model = fk.cast(nested(), "bfloat16")
    trainer = fk.Trainer("sgd", "mse")
    run, history = trainer.fit(
        trainer.init(model, jax.random.key(0)), X, np.ones((2, 6), "float32"), epochs=2, verbose=0
    )
    assert history["loss"][1] < history["loss"][0]
    fk.save_model(tmp_path / "m.keras", run.model)
    again, _ = fk.load_model(tmp_path / "m.keras")
    assert again(X).dtype == "bfloat16" and (again(X) == run.model(X)).all()


class Block(fk.Model):
    units: int

    def call(self, x):
        return layers.Dense(self.units)(layers.Dense(self.units)(x))


@pytest.mark.parametrize("suffix", ["keras", pytest.param("h5", marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("dtype", ["bfloat16", "mixed_float16"])
def test_models_are_cast_when_they_are_read(tmp_path, dtype, suffix):
    path = tmp_path / f"m.{suffix}"
    with keras_rules():
        norm = keras.layers.BatchNormalization(name="norm")
        top = keras.layers.Dense(2, dtype="float32", name="top")
        source = keras.Sequential([keras.Input((4,)), norm, top])
        source.save(path)
    model, state = fk.load_model(path)
    half, half_state = fk.load_model(path, dtype=dtype)
    assert half == fk.cast(model, dtype)
    expected = fk.cast(model, dtype).init_state()
    for array, like in zip(jax.tree.leaves(half_state), jax.tree.leaves(expected), strict=True):
        assert array.dtype == like.dtype
    assert half.layers["top"].kernel.dtype == ("bfloat16" if dtype == "bfloat16" else "float32")
    assert half(X[:, 0], state=half_state).dtype == dtype.removeprefix("mixed_")


@pytest.mark.exhaustive
def test_layers_in_the_call_of_a_custom_model_are_cast_when_read(tmp_path):
    model = fk.Sequential([fk.Input((4,)), Block(4), layers.BatchNormalization()])
    model = model.build(jax.random.key(0))
    fk.save_model(tmp_path / "m.keras", model, model.init_state())
    half, state = fk.load_model(
        tmp_path / "m.keras", custom_objects={"Block": Block}, dtype="bfloat16"
    )
    assert half == fk.cast(model, "bfloat16")
    assert half(X[:, 0], state=state).dtype == "bfloat16"
    mesh = jax.make_mesh((2,), ("data",))
    spread, _ = fk.load_model(
        tmp_path / "m.keras",
        custom_objects={"Block": Block},
        dtype="bfloat16",
        mesh=mesh,
        sharding="fsdp",
    )
    assert spread == half and len(jax.tree.leaves(spread)[0].sharding.device_set) == 2


@pytest.mark.parametrize(
    ("dtype", "text"), [("int8", "load_model: expected one of float32"), ("half", "'half'")]
)
def test_mistakes_in_dtypes_of_files(tmp_path, dtype, text):
    fk.save_model(tmp_path / "m.keras", fk.Sequential([fk.Input((4,)), layers.Flatten()]))
    with pytest.raises(ValueError, match=text):
        fk.load_model(tmp_path / "m.keras", dtype=dtype)


@pytest.mark.parametrize(
    ("value", "dtype", "error", "text"),
    [
        ("layer", "int8", ValueError, r'received .int8.*fk.quantize\(model, "int8"\)'),
        ("layer", "half", ValueError, "no dtype policy 'half'"),
        ("layer", None, ValueError, "as dtype, received None"),
        ("layer", "float64", ValueError, "jax_enable_x64"),
        ({"a": 1}, "float16", TypeError, "expected a layer or model, received"),
    ],
)
def test_mistakes(value, dtype, error, text):
    value = layers.Dense(2) if value == "layer" else value
    with pytest.raises(error, match=text):
        fk.cast(value, dtype)
