"""Graphs as Keras's JSON: pinned arguments, masks, options, structures, shared and nested layers."""

import inspect
import json

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.engine.config.keras_form import keras_form
from tests.support.keras_oracle import keras, keras_rules

X = np.linspace(-1, 1, 3 * 4, dtype="float32").reshape(3, 4)
IDS = np.array([[1, 2, 3, 0, 0], [4, 1, 0, 0, 0]], "int32")


def through_json(config):
    return json.loads(json.dumps(config))


def keras_json(build):
    """Keras's model from `build` and its JSON data."""
    with keras_rules():
        model = build(keras)
        return model, through_json(model.get_config())


def item(config, name):
    return next(entry for entry in config["layers"] if entry["name"] == name)


def pins(model):
    return {call.layer: call.training for call in model.graph.calls if call.training is not None}


def check_both_ways(build, *arrays, custom_objects=None):
    """Converts the model to JSON and back in both directions and compares all outputs."""
    keras_model, data = keras_json(build)
    read = fk.Model.from_config(data, custom_objects)
    written_config = through_json(read.get_config())
    assert fk.Model.from_config(written_config, custom_objects) == read
    model_here = build(fk)
    own_config = through_json(model_here.get_config())
    assert fk.Model.from_config(own_config, custom_objects) == model_here
    assert json.dumps(fk.Model.from_config(own_config, custom_objects).get_config()) == json.dumps(
        own_config
    )
    read = read.build(jax.random.key(0))
    state = read.init_state()
    weights = read.get_weights(state)
    inputs = arrays[0] if len(arrays) == 1 else list(arrays)
    with keras_rules():
        keras.Model.from_config(written_config)
        models = [keras_model, keras.Model.from_config(own_config)]
        for model in models:
            model.set_weights(weights)
        expected = [jax.tree.leaves(model(inputs)) for model in models]
    values_here = [jax.tree.leaves(read.apply(inputs, state=state).value)]
    restored, state = model_here.build(jax.random.key(1)).set_weights(weights, state)
    values_here.append(jax.tree.leaves(restored.apply(inputs, state=state).value))
    for values in (*expected[1:], *values_here):
        for a, b in zip(values, expected[0], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    return read


def test_the_default_of_training_and_the_names_of_inputs_are_keras_s():
    for name in layers.__all__:
        layer_class, keras_class = getattr(layers, name), getattr(keras.layers, name, None)
        if (
            keras_class is None
            or not inspect.isclass(layer_class)
            or not issubclass(layer_class, fk.Layer)
        ):
            continue
        parameters = inspect.signature(keras_class.call).parameters
        if "training" in parameters:
            assert keras_form(layer_class).training_default is parameters["training"].default, name
        required = [
            p.name
            for p in list(parameters.values())[1:]
            if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD
        ]
        optional = ("key",)  # Keras uses the value as the key by default
        expected = [n for n in keras_form(layer_class).input_names if n not in optional]
        assert not required or required == expected[: len(required)] == expected, name


def pinned(k):
    x = k.Input((4,), name="x")
    each = [
        k.layers.Dropout(0.5, name="free")(x),
        k.layers.Dropout(0.5, name="on")(x, training=True),
        k.layers.BatchNormalization(name="norm")(x),
        k.layers.BatchNormalization(name="still")(x, training=False),
        k.layers.BatchNormalization(name="moving")(x, training=True),
        k.layers.Rescaling(2.0, name="rescaling")(x),
    ]
    inner = k.Model(x2 := k.Input((4,)), k.layers.BatchNormalization(name="bn")(x2), name="inner")
    return k.Model(x, [*each, inner(x), inner(x, training=False)])


@pytest.mark.exhaustive
def test_only_values_other_than_the_keras_default_pin_training():
    model, data = keras_json(pinned)
    assert item(data, "free")["inbound_nodes"][0]["kwargs"] == {"training": False}
    read = fk.Model.from_config(data)
    model_here = pinned(fk)
    assert (
        pins(read)
        == pins(model_here)
        == {"on": True, "still": False, "moving": True, "inner": False}
    )
    written_config = through_json(model_here.get_config())
    with keras_rules():
        keras_config = through_json(
            keras.Model.from_config(through_json(written_config)).get_config()
        )
    for name in ("free", "on", "norm", "still", "moving"):
        nodes = [item(c, name)["inbound_nodes"][0]["kwargs"] for c in (keras_config, data)]
        assert nodes[0] == nodes[1]
    assert fk.Model.from_config(written_config) == model_here


def test_a_pin_to_the_default_is_stored_beside_the_config_of_keras():
    x = fk.Input((4,), name="x")
    y = layers.Dropout(0.5, name="drop")(x, training=False)
    model = fk.Model(
        x, layers.RandomFlip(name="flip")(fk.ops.reshape(y, (-1, 2, 2, 1)), training=True)
    )
    config = through_json(model.get_config())
    node = item(config, "drop")["inbound_nodes"][0]
    assert node["training"] is node["kwargs"]["training"] is False
    assert pins(fk.Model.from_config(config)) == {"drop": False, "flip": True}
    with keras_rules():
        assert "training" not in item(
            keras.Model.from_config(through_json(config)).get_config(), "drop"
        )
    del node["training"]  # as Keras writes it
    assert pins(fk.Model.from_config(config)) == {"flip": True}


def test_a_pin_wins_over_the_call():
    x = fk.Input((4,), name="x")
    model = fk.Model(x, layers.Dropout(0.5, name="drop")(x, training=True))
    restored = fk.Model.from_config(through_json(model.get_config()))
    out = restored.apply(X, training=False, key=jax.random.key(0)).value
    assert (np.asarray(out) == 0).any()


class Mine(fk.Layer):
    def forward(self, context, x):
        return fk.Output(x * (2.0 if context.training else 1.0))


def test_a_custom_layer_has_the_usual_training_default():
    x = fk.Input((4,), name="x")
    data = through_json(fk.Model(x, Mine(name="mine")(x)).get_config())
    for stored, pin in ((False, None), (None, None), (True, True)):
        item(data, "mine")["inbound_nodes"][0]["kwargs"] = {"training": stored}
        assert pins(fk.Model.from_config(data, {"Mine": Mine})).get("mine") is pin
    # as Keras has registered classes
    item(data, "mine").update(module="somewhere", registered_name="mine>Mine")
    assert isinstance(fk.Model.from_config(data, {"mine>Mine": Mine}).layers["mine"], Mine)
    model = fk.Model(x, Mine(name="mine")(x, training=False))
    assert fk.Model.from_config(through_json(model.get_config()), {"Mine": Mine}) == model


def masked(k):
    L = k.layers
    ids = k.Input((5,), dtype="int32", name="ids")
    e = L.Embedding(7, 4, mask_zero=True, name="e")(ids)
    bidirectional = L.Bidirectional(L.GRU(3, return_sequences=True, name="gru"), name="both")(e)
    last, h, c = L.LSTM(6, return_state=True, name="st")(bidirectional)
    seeded = L.LSTM(6, name="seeded")(
        bidirectional, initial_state=[h, c], mask=k.ops.not_equal(ids, 1)
    )
    short = L.GRU(2, name="short")(bidirectional)
    attended = L.Attention(name="attention")(
        [bidirectional, bidirectional], return_attention_scores=True
    )[1]
    return k.Model(ids, [last, seeded, short, attended])


@pytest.mark.exhaustive
def test_masks_and_initial_states():
    _, data = keras_json(masked)
    # Keras stores the mask as a separate tensor
    assert (
        item(data, "st")["inbound_nodes"][0]["kwargs"]["mask"]["class_name"] == "__keras_tensor__"
    )
    check_both_ways(masked, IDS)


def attention(k):
    L = k.layers
    x = k.Input((3, 4), batch_size=2, name="x")
    y = k.Input((5, 4), batch_size=2, name="y")
    mask = k.Input((3, 5), batch_size=2, name="mask", dtype="bool")
    first = L.MultiHeadAttention(2, 2, name="one")(x, y, y * 2.0, attention_mask=mask)
    second = L.MultiHeadAttention(2, 2, name="two")(x, y, return_attention_scores=True)
    third = L.MultiHeadAttention(2, 2, name="three")(x, x, use_causal_mask=True)
    return k.Model([x, y, mask], [first, second, third])


@pytest.mark.exhaustive
def test_options_of_attention():
    rng = np.random.default_rng(0)
    x, y = rng.random((2, 3, 4), "float32"), rng.random((2, 5, 4), "float32")
    check_both_ways(attention, x, y, np.arange(30).reshape(2, 3, 5) % 3 > 0)


def test_inputs_by_name_are_those_by_position():
    def named(k):
        x, y = k.Input((3, 4), name="x"), k.Input((5, 4), name="y")
        out = k.layers.MultiHeadAttention(2, 2, name="a")(query=x, value=y, key=y)
        return k.Model([x, y], k.layers.Dense(2, name="d")(inputs=out))

    _, data = keras_json(named)
    read = fk.Model.from_config(data)
    assert [len(call.inputs) for call in read.graph.calls] == [0, 0, 3, 1]
    assert not any(call.options.keys for call in read.graph.calls if not call.is_input)


def test_an_explicit_mask_of_none_is_kept():
    ids = fk.Input((5,), dtype="int32", name="ids")
    e = layers.Embedding(7, 4, mask_zero=True, name="e")(ids)

    def model(**options):
        free = layers.GRU(2, name="b")(e, **options)
        return fk.Model(ids, [layers.GRU(2, name="a")(e, mask=None), free])

    config = through_json(model().get_config())
    assert "mask" not in item(config, "a")["inbound_nodes"][0]["kwargs"]
    assert fk.Model.from_config(config) == model()
    # Keras writes null if the inputs had no mask when the call was recorded, and looks for their
    # masks when the call runs
    item(config, "b")["inbound_nodes"][0]["kwargs"]["mask"] = None
    assert fk.Model.from_config(config) == model()


class Mix(fk.Layer):
    def call(self, tree, scale=1.0, parts=()):
        return {"a": sum(jax.tree.leaves(tree)) * scale, "b": sum(parts) * 1.0}


def test_nested_arguments_and_constants_are_kept():
    x, y = fk.Input((4,), name="x"), fk.Input((4,), name="y")
    tree = {"left": [x, (y, x)], "right": {"deep": (y,)}}
    constant = np.arange(4, dtype="float32")[None]
    out = Mix(name="mix")(tree, constant, parts=(x, y, [2.0, 3.0][0]))
    model = fk.Model((x, {"y": y}), ([out["b"]], out))
    config = through_json(model.get_config())
    assert "__tuple__" not in json.dumps(config)
    restored = fk.Model.from_config(config, {"Mix": Mix})
    assert restored == model
    item(config, "mix")["inbound_nodes"][0]["args"][1] = {
        "class_name": "__tensor__",
        "config": {"value": constant.tolist(), "dtype": "float32"},
    }
    assert fk.Model.from_config(config, {"Mix": Mix}) == model


def _two(k):
    x, y = k.Input((4,), name="x"), k.Input((4,), name="y")
    return x, y, k.layers.Dense(2, name="d")(x), k.layers.Dense(2, name="e")(y)


STRUCTURES = {
    "single": lambda x, y, a, b: (x, a),
    "a list of one": lambda x, y, a, b: ([x], [a]),
    "lists": lambda x, y, a, b: ([x, y], [b, a]),
    "tuples": lambda x, y, a, b: ((x, y), (a, b)),
    "dictionaries": lambda x, y, a, b: ({"y": y, "x": x}, {"two": b, "one": a}),
    "nested": lambda x, y, a, b: ([x, {"y": y}], {"one": [a, (b, a)], "two": a}),
    "an input that is an output": lambda x, y, a, b: ([x, y], [x, b]),
    "one tensor twice": lambda x, y, a, b: (x, [a, a]),
    "an unused input": lambda x, y, a, b: ([y, x], a),
}


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", STRUCTURES)
def test_structures_of_inputs_and_outputs(name):
    def build(k):
        inputs, outputs = STRUCTURES[name](*_two(k))
        return k.Model(inputs, outputs, name="m")

    keras_model, data = keras_json(build)
    model_here = build(fk)
    read = fk.Model.from_config(data)
    written_config = through_json(model_here.get_config())
    for key in ("input_layers", "output_layers"):
        assert written_config[key] == data[key]
    assert [entry["name"] for entry in written_config["layers"]] == [
        e["name"] for e in data["layers"]
    ]
    assert fk.Model.from_config(written_config) == model_here
    with keras_rules():
        restored = keras.Model.from_config(through_json(written_config))
        structure = jax.tree.structure(jax.tree.map(lambda t: 0, keras_model.input))
        assert (
            jax.tree.structure(jax.tree.map(lambda t: 0, restored.input)) == structure
            or name == "tuples"
        )
    if name in ("single", "lists", "dictionaries", "one tensor twice"):
        assert read == model_here
    if name == "a list of one":  # as a model of Keras returns it
        assert read.outputs.shape == (None, 2)
        assert isinstance(model_here.outputs, list)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("batch", [None, 8])
def test_input_layers(batch):
    def build(k):
        x = k.Input(batch_shape=(batch, None, 3), name="x", dtype="float16")
        return k.Model(x, k.layers.Dense(2, name="d")(x))

    _, data = keras_json(build)
    assert fk.Model.from_config(data).inputs.shape == (batch, None, 3)
    entry = item(data, "x")["config"]
    for flag in ("sparse", "ragged", "optional"):
        entry[flag] = True
        fk.Model.from_config(data)
    with keras_rules():
        tensor = keras.Input(tensor=keras.KerasTensor((2, 3), name="t"), name="given")
        model = keras.Model(tensor, keras.layers.Dense(2)(tensor))
    assert fk.Model.from_config(through_json(model.get_config())).inputs.shape == (2, 3)


def shared(k):
    L = k.layers
    x, y = k.Input((4,), name="x"), k.Input((4,), name="y")
    dense = L.Dense(4, name="dense")
    dense(k.Input((4,), name="elsewhere"))  # a call outside this model
    a = dense(x)
    dense(a)  # likewise
    b = dense(L.Activation("relu", name="act")(dense(y)))
    i, j = k.Input((4,), name="i"), k.Input((4,), name="j")
    inner = k.Model(
        [i, j], [L.Add(name="add")([dense(i), j]), L.Dense(4, name="own")(j)], name="inner"
    )
    first, second = inner([a, b])
    inner([second, second])
    third = inner([second, first])[1]
    chain = k.Sequential([k.Input((4,), name="s"), L.Dense(3, name="head")], name="chain")
    mapped = k.Model({"p": i}, {"q": L.Dense(4, name="inside")(i)}, name="mapped")
    return k.Model([x, y], [chain(third), chain(a), inner([third, a])[0], mapped({"p": a})["q"]])


@pytest.mark.exhaustive
def test_shared_and_nested_layers():
    keras_model, data = keras_json(shared)
    read = fk.Model.from_config(data)
    model_here = shared(fk)
    assert (
        list(model_here.layers) == list(read.layers) == [layer.name for layer in keras_model.layers]
    )
    written_config = through_json(model_here.get_config())
    assert fk.Model.from_config(written_config) == model_here
    for name in ("dense", "inner", "chain"):
        results, expected = (
            [n["args"] for n in item(c, name)["inbound_nodes"]] for c in (written_config, data)
        )
        assert results == expected
    assert written_config["output_layers"] == data["output_layers"]
    with keras_rules():
        restored = keras.Model.from_config(through_json(written_config))
        keras_config = through_json(restored.get_config())
    assert keras_config["output_layers"] == data["output_layers"]
    built = read.build(jax.random.key(0))
    weights = {name: layer.get_weights() for name, layer in built.layers.items()}
    with keras_rules():
        for model in (keras_model, restored):
            for layer in model.layers:
                if weights[layer.name]:
                    layer.set_weights(weights[layer.name])
        # files store the layer shared with the inner model twice
        inner = [model.get_layer("inner") for model in (keras_model, restored)]
        outer = weights["dense"]
        for model in inner:
            model.get_layer("dense").set_weights(outer)
        expected = [[np.asarray(v) for v in model([X, X * 2])] for model in (keras_model, restored)]
    kernel, bias = outer
    nested = built.layers["inner"]
    dense = nested.layers["dense"].replace(kernel=kernel, bias=bias)
    nested = nested.replace(layers={**nested.layers, "dense": dense})
    built = built.replace(layers={**built.layers, "inner": nested})
    results = [np.asarray(v) for v in built([X, X * 2])]
    for values in (expected[1], results):
        for a, b in zip(values, expected[0], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_policies_and_other_keys_of_keras():
    with keras_rules():
        x = keras.Input((4,), name="x")
        mapped = keras.dtype_policies.DTypePolicyMap()
        y = keras.layers.Dense(2, name="a", dtype=mapped)(x)
        y = keras.layers.Dense(2, name="b", dtype="mixed_bfloat16")(y)
        data = through_json(keras.Model(x, y).get_config())
    entry = item(data, "b")
    entry |= {
        "build_config": {"input_shape": [None, 2]},
        "compile_config": {},
        "shared_object_id": 7,
    }
    read = fk.Model.from_config(data)
    assert [read.layers[n].dtype.name for n in "ab"] == ["float32", "mixed_bfloat16"]
    entry["config"]["dtype"] = {
        **{"module": "keras.dtype_policies", "class_name": "QuantizedDTypePolicy"},
        **{"config": {"mode": "int7", "source_name": "float32"}, "registered_name": None},
    }
    with pytest.raises(fk.FKerasError, match=r"'b'.*expected.*(policy|mode)"):
        fk.Model.from_config(data)


@pytest.mark.exhaustive
def test_inputs_of_a_nested_model_by_position():
    a, b = fk.Input((4,), name="a"), fk.Input((4,), name="b")
    inner = fk.Model([a, b], layers.Subtract()([a, b]), name="inner")
    x = fk.Input((4,))
    model = fk.Model(x, inner(2 * x, x))
    read = fk.Model.from_config(through_json(model.get_config()))
    np.testing.assert_allclose(read(X), X, atol=1e-6)
    with keras_rules():
        copy = keras.Model.from_config(through_json(fk.Model(x, inner(x, x)).get_config()))
        np.testing.assert_allclose(copy(X), 0 * X)
