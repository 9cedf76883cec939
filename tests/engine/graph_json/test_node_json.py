"""Nodes in the JSON form of graphs: round trips, constants, damaged files."""

import json

import numpy as np
import pytest

import fkeras as fk
from fkeras import layers


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


def test_the_json_of_a_node():
    x = fk.Input((4,), name="x")
    model = fk.Model(x, layers.Dense(2, name="d")(x, training=True))
    entry = model.get_config()["layers"][1]
    assert entry["inbound_nodes"] == [
        {
            "args": [
                {
                    "class_name": "__keras_tensor__",
                    "config": {
                        "shape": [None, 4],
                        "dtype": "float32",
                        "keras_history": ["x", 0, 0],
                    },
                }
            ],
            "kwargs": {"training": True},
        }
    ]
    assert model.get_config()["input_layers"] == ["x", 0, 0]
    assert model.get_config()["output_layers"] == ["d", 0, 0]


def test_json_round_trip_is_exact():
    for model in (diamond(), shared_lstm()):
        text = json.dumps(model.get_config())
        restored = fk.Model.from_config(json.loads(text))
        assert restored.graph == model.graph
        assert restored == model
        assert json.dumps(restored.get_config()) == text


class Scaled(fk.Layer):
    """A layer whose call takes an option."""

    def call(self, x, *, by=None):
        return x


class Opaque:
    """A hashable value that JSON cannot hold."""


def test_an_option_without_json_form_is_named_when_saving():
    x = fk.Input((4,), name="x")
    model = fk.Model(x, Scaled(name="scaled")(x, by=Opaque()))
    with pytest.raises(TypeError) as error:
        model.get_config()
    assert "scaled" in str(error.value)
    assert "'by'" in str(error.value)
    assert "Opaque" in str(error.value)


def test_array_options_are_constants_and_round_trip():
    x = fk.Input((2,), name="x")
    model = fk.Model(x, Scaled(name="scaled")(x, by=np.arange(2, dtype="float32")))
    config = json.loads(json.dumps(model.get_config()))
    assert fk.Model.from_config(config, {"Scaled": Scaled}) == model


def test_a_cycle_in_a_file_is_an_error():
    x = fk.Input((2,), name="x")
    a = layers.Dense(2, name="l1")(x)
    config = fk.Model(x, layers.Dense(2, name="l2")(a)).get_config()
    config = json.loads(json.dumps(config).replace('["x", 0, 0]}}]', '["l2", 0, 0]}}]'))
    with pytest.raises(fk.FKerasError) as error:
        fk.Model.from_config(config)
    assert "form a cycle" in str(error.value)
    assert "l1" in str(error.value)
    assert "l2" in str(error.value)


def test_a_missing_origin_in_a_file_is_an_error():
    x = fk.Input((2,), name="x")
    config = fk.Model(x, layers.Dense(2, name="l1")(x)).get_config()
    text = json.dumps(config).replace('["x", 0, 0]}}]', '["gone", 0, 0]}}]')
    with pytest.raises(fk.FKerasError, match="which the configuration does not define"):
        fk.Model.from_config(json.loads(text))
