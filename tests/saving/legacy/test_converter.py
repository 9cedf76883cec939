"""Files of Keras 2.3.1: outputs equal those of Keras 2.3.1."""

import io
import json

import h5py
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras.saving.quirks.keras2_objects import keras2_hard_sigmoid
from tests.support.legacy_files import array, arrays, cases, load, model_file, outputs, write

MODELS = [name for name, case in cases().items() if "losses" not in case]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [*MODELS, "shared", "frozen"])
def test_outputs_equal_those_of_keras_2(name):
    case = cases()[name]
    model, state = load(write(case["file"]))
    results = outputs(model, state, arrays(case["inputs"]))
    for value, expected in zip(results, case["outputs"], strict=True):
        np.testing.assert_allclose(value, array(expected), rtol=1e-5, atol=2e-6)


def test_frozen_layers_stay_frozen():
    model, _ = load(write(cases()["frozen"]["file"]))
    frozen = [name for name, layer in model.layers["inner"].layers.items() if not layer.trainable]
    assert frozen == ["dense_1"]


@pytest.mark.exhaustive
def test_nested_weights_are_read_in_the_order_of_keras_2():
    """All trainable arrays of a nested model come first in the file, then the others."""
    tree = cases()["shared"]["file"]
    model, state = load(write(tree))
    stored = tree["arrays"]
    inner = model.layers["inner"]
    for name, layer in inner.layers.items():
        for weight in ("kernel", "bias", "gamma", "beta"):
            value = getattr(layer, weight, None)
            if value is not None:
                stored_array = stored[f"model_weights/inner/{name}/{weight}:0"]
                np.testing.assert_array_equal(value, array(stored_array))
        for statistic, value in state["inner"].get(name, {}).items():
            stored_array = stored[f"model_weights/inner/{name}/{statistic}:0"]
            np.testing.assert_array_equal(value, array(stored_array))


def _sequential(layer, **config):
    item = {
        "class_name": layer,
        "config": {"name": "one", "batch_input_shape": [None, 3], **config},
    }
    return {"class_name": "Sequential", "config": [item]}


@pytest.mark.exhaustive
def test_the_hard_sigmoid_follows_the_version():
    x = np.linspace(-4, 4, 3, dtype="float32")[None]
    config = _sequential("Activation", activation="hard_sigmoid")
    for version, function in (
        ("2.1.2", keras2_hard_sigmoid),
        ("2.11.0", keras2_hard_sigmoid),
        ("3.3.0", fk.activations.hard_sigmoid),
    ):
        model, state = load(model_file(config, {"one": {}}, version))
        np.testing.assert_allclose(outputs(model, state, x)[0], function(jnp.asarray(x)), 1e-6)


@pytest.mark.exhaustive
def test_names_of_weights_may_be_split_over_several_attributes():
    """Keras splits a list of names that one attribute of HDF5 cannot hold."""
    names = [f"layer_{i}" for i in range(5)]
    items = [
        {"class_name": "Dense", "config": {"name": name, "units": 2, "activation": "tanh"}}
        for name in names
    ]
    items[0]["config"]["batch_input_shape"] = [None, 2]
    rng = np.random.default_rng(0)
    weights = {
        n: {"kernel:0": rng.normal(size=(2, 2)), "bias:0": rng.normal(size=2)} for n in names
    }
    config = {"class_name": "Sequential", "config": {"name": "s", "layers": items}}
    data = io.BytesIO(model_file(config, weights))
    with h5py.File(data, "r+") as file:
        group = file["model_weights"]
        layer_names = group.attrs["layer_names"]
        del group.attrs["layer_names"]
        group.attrs["layer_names0"], group.attrs["layer_names1"] = layer_names[:3], layer_names[3:]
    model, state = load(data.getvalue())
    y = x = rng.normal(size=(4, 2)).astype("float32")
    for layer_weights in weights.values():
        y = np.tanh(y @ layer_weights["kernel:0"] + layer_weights["bias:0"])
    np.testing.assert_allclose(outputs(model, state, x)[0], y, rtol=1e-5)


def test_a_slash_in_a_name_becomes_an_underscore():
    config = _sequential("Dense", name="block/conv", units=1, use_bias=False)
    model, _ = load(model_file(config, {"block/conv": {"kernel:0": np.ones((3, 1), "float32")}}))
    assert [layer.name for layer in model] == ["block_conv"]


@pytest.mark.exhaustive
def test_an_embedding_accepts_floats_as_in_keras_2():
    config = _sequential("Embedding", input_dim=4, output_dim=2, input_length=3)
    table = np.arange(8.0, dtype="float32").reshape(4, 2)
    model, state = load(model_file(config, {"one": {"embeddings:0": table}}, "2.0.8"))
    vectors = outputs(model, state, np.array([[1.0, 3.0, 0.0]], "float32"))[0]
    np.testing.assert_array_equal(vectors[0], table[[1, 3, 0]])


def _functional(layers, inputs, results):
    return {
        "class_name": "Model",
        "config": {"name": "m", "layers": layers, "input_layers": inputs, "output_layers": results},
    }


def _item(kind, name, nodes=(), **config):
    return {
        "class_name": kind,
        "name": name,
        "config": {"name": name, **config},
        "inbound_nodes": list(nodes),
    }


@pytest.mark.exhaustive
def test_options_of_a_call_may_be_tensors():
    """TensorFlow's Keras writes a tensor in a keyword argument as its coordinates."""
    layers = [
        _item("InputLayer", "a", batch_input_shape=[None, 4, 2], dtype="float32"),
        _item("InputLayer", "h", batch_input_shape=[None, 3], dtype="float32"),
        _item("GRU", "g", [[["a", 0, 0, {"initial_state": ["h", 0, 0]}]]], units=3,
              activation="tanh", recurrent_activation="sigmoid", reset_after=True,
              time_major=False),
    ]  # fmt: skip
    rng = np.random.default_rng(1)
    shapes = {"kernel:0": (2, 9), "recurrent_kernel:0": (3, 9), "bias:0": (2, 9)}
    weights = {n: rng.normal(size=s).astype("float32") for n, s in shapes.items()}
    config = _functional(layers, [["a", 0, 0], ["h", 0, 0]], [["g", 0, 0]])
    model, state = load(model_file(config, {"a": {}, "h": {}, "g": weights}, "2.9.0"))
    x, h = rng.normal(size=(2, 4, 2)).astype("float32"), rng.normal(size=(2, 3)).astype("float32")
    y = _gru(x, h, *weights.values())
    np.testing.assert_allclose(outputs(model, state, [x, h])[0], y, rtol=1e-5, atol=1e-6)


def _gru(x, h, kernel, recurrent, bias):
    def sigmoid(v):
        return 1 / (1 + np.exp(-v))

    for t in range(x.shape[1]):
        a, b = x[:, t] @ kernel + bias[0], h @ recurrent + bias[1]
        (az, ar, ah), (bz, br, bh) = np.split(a, 3, 1), np.split(b, 3, 1)
        z, r = sigmoid(az + bz), sigmoid(ar + br)
        h = z * h + (1 - z) * np.tanh(ah + r * bh)
    return h


def test_constants_and_training_flags_in_calls():
    layers = [
        _item("InputLayer", "a", batch_input_shape=[None, 2], dtype="float32"),
        _item("Dropout", "d", [[["a", 0, 0, {"training": False}]]], rate=0.5),
        _item("Add", "s", [[["d", 0, 0, {}], ["_CONSTANT_VALUE", -1, [[1.0, 2.0]], {}]]]),
    ]
    config = _functional(layers, [["a", 0, 0]], [["s", 0, 0]])
    model, state = load(model_file(config, {"a": {}, "d": {}, "s": {}}, "2.6.0"))
    out = model.apply(np.zeros((1, 2), "float32"), state=state, training=True)
    np.testing.assert_array_equal(out.value, [[1.0, 2.0]])


def test_policies_and_keys_of_tensorflow():
    policy = {"class_name": "Policy", "config": {"name": "mixed_bfloat16"}}
    initializer = {"class_name": "GlorotUniform", "config": {"seed": None, "dtype": "float32"}}
    config = _sequential(
        "Dense", units=1, dtype=policy, kernel_initializer=initializer, activation="softmax_v2"
    )
    weights = {"kernel:0": np.ones((3, 1), "float32"), "bias:0": np.zeros(1, "float32")}
    model, _ = load(model_file(config, {"one": weights}, "2.4.0"))
    assert model.layers["one"].dtype.name == "mixed_bfloat16"
    axis = _sequential("BatchNormalization", axis=[1], fused=True, renorm=False)
    names = ("gamma:0", "beta:0", "moving_mean:0", "moving_variance:0")
    model, _ = load(
        model_file(axis, {"one": {n: np.ones(3, "float32") for n in names}}, "2.2.4-tf")
    )
    assert model.layers["one"].axis == 1


def test_a_configuration_is_read_as_json_alone():
    text = json.dumps(_sequential("Dense", units=1, use_bias=False))
    data = model_file(
        {}, {"one": {"kernel:0": np.ones((3, 1), "float32")}}, root={"model_config": text}
    )
    assert load(data)[0].layers["one"].units == 1
