"""Architectures as JSON, with weights in another file."""

import json
import pathlib

import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from tests.support.keras_oracle import keras, keras_rules
from tests.support.legacy_files import cases, load, write
from tests.support.paths import DATA

KERAS_1 = json.loads((DATA / "keras122.json").read_text())["cases"]
FILES = {
    **{f"keras 2, {name}": case["file"] for name, case in cases().items()},
    **{f"keras 1, {name}": case["file"] for name, case in KERAS_1.items()},
}


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", FILES)
def test_json_of_keras_1_and_2_is_the_model_of_its_file(name):
    root = FILES[name]["attributes"][""]
    # `to_json` of Keras 1 and 2 adds these keys to the configuration that files hold
    about = {"keras_version": root.get("keras_version", "1.2.2"), "backend": "tensorflow"}
    text = json.dumps({**json.loads(root["model_config"]), **about})
    model = fk.model_from_json(text)
    expected, _ = load(write(FILES[name]))
    assert model == fk.engine.unbuilt(expected)


def test_json_of_keras_2_and_its_weights(tmp_path):
    tree = cases()["shared"]["file"]
    path = tmp_path / "weights.h5"
    path.write_bytes(write(tree))
    model = fk.model_from_json(tree["attributes"][""]["model_config"].encode())
    model, state = fk.load_weights(path, model)
    expected, its_state = load(write(tree))
    assert model == expected
    assert {*state} == {*its_state}


@pytest.fixture(scope="module", params=["functional", "sequential"])
def keras_model(request):
    with keras_rules():
        x = keras.Input((4,))
        inner = [keras.layers.Dense(3, name="d"), keras.layers.BatchNormalization()]
        model = keras.Sequential([x, *inner])
        if request.param == "functional":
            y = model.layers[1](model.layers[0](x))
            # a frozen layer's statistics and merged masks follow the version of Keras
            model = keras.Model(x, keras.layers.Add()([y, y]))
        yield model


@pytest.mark.exhaustive
def test_json_of_keras_3_and_its_weights(tmp_path, keras_model):
    text, x = keras_model.to_json(), np.ones((2, 4), "float32")
    with keras_rules():
        keras_model.save(tmp_path / "m.keras")
        keras_model.save_weights(tmp_path / "m.weights.h5")
        expected = np.asarray(keras_model(x))
    model = fk.model_from_json(text)
    assert model == fk.engine.unbuilt(fk.load_model(tmp_path / "m.keras")[0])
    assert fk.model_from_json(json.dumps(text)) == model
    filled, state = fk.load_weights(tmp_path / "m.weights.h5", model)
    np.testing.assert_allclose(filled(x, state=state), expected, atol=1e-6)
    # without the rules for versions of Keras, which `model_from_json` applies
    again, state = fk.load_weights(
        tmp_path / "m.weights.h5", type(model).from_config(json.loads(text))
    )
    np.testing.assert_allclose(again(x, state=state), expected, atol=1e-6)
    assert fk.model_from_json(model.to_json()) == model


def test_custom_classes_come_by_name():
    class Double(fk.Layer):
        def call(self, x):
            return 2 * x

    model = fk.Sequential([fk.Input((2,)), Double(name="d")])
    assert fk.model_from_json(model.to_json(), {"Double": Double}) == model
    with pytest.raises(fk.FileError, match="Double"):
        fk.model_from_json(model.to_json())


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("", fk.FileError, "invalid JSON"),
        ("model.json", fk.FileError, "invalid JSON"),
        ("[]", fk.FileError, "expected the configuration of a model as a dictionary"),
        ("{}", fk.FileError, "'layers' is missing"),
        ('{"layers": 3}', fk.FileError, "'layers' as a list"),
        ('{"class_name": "Foo", "config": {}}', fk.FileError, "received the class 'Foo'"),
        ('{"class_name": "Model", "keras_version": "2.1"}', fk.FileError, "'config' is missing"),
        ('{"class_name": "Model", "keras_version": 7}', fk.FileError, "keras_version such as"),
        ('{"class_name": "Model", "keras_version": "4.0"}', fk.FileError, "Keras 1, 2 or 3"),
        (json.dumps(fk.layers.serialize(layers.ReLU())), fk.FileError, "expected a model"),
        (pathlib.Path("m.json"), TypeError, "path.read_text"),
    ],
)
def test_other_texts_are_refused(text, error, message):
    with pytest.raises(error, match=message):
        fk.model_from_json(text)


@pytest.mark.exhaustive
def test_a_json_file_is_no_file_of_a_model(tmp_path):
    (tmp_path / "m.json").write_text(fk.Sequential([layers.ReLU()]).to_json())
    with pytest.raises(fk.FileError, match="fk.model_from_json"):
        fk.load_model(tmp_path / "m.json")
    functional = {"class_name": "Functional", "config": {}}
    with pytest.raises(ValueError, match="received that of a Functional"):
        fk.Sequential.from_config(functional)
