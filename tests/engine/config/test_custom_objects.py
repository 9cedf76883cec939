"""`custom_objects`: one rule for the names of classes and functions; suggestions are valid Python."""

import ast
import re

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.engine.config.custom_objects import custom_code
from tests.support.keras_oracle import keras, keras_rules

X = np.ones((2, 3), "float32")


@keras.saving.register_keras_serializable(package="own")
class Doubled(keras.layers.Layer):
    def call(self, x):
        return x * 2.0


@keras.saving.register_keras_serializable(package="own")
def halved(x):
    return x * 0.5


@keras.saving.register_keras_serializable(package="own")
def distance(y_true, y_pred):
    return keras.ops.mean(keras.ops.abs(y_true - y_pred), axis=-1)


class Ours(fk.Layer):
    def call(self, x):
        return x * 2.0


def ours(x):
    return x * 0.5


def far(y_true, y_pred):
    return abs(y_true - y_pred).mean(-1)


PLAIN = {"Doubled": Ours, "halved": ours, "distance": far}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("custom")
    with keras_rules():
        x = keras.Input((3,))
        y = Doubled()(keras.layers.Dense(2, activation=halved)(x))
        model = keras.Model(x, keras.layers.Lambda(halved, name="lam")(y))
        row = [keras.Input((3,)), Doubled(), keras.layers.Dense(2, activation=halved)]
        for name, keras_model in (("graph", model), ("row", keras.Sequential(row))):
            keras_model.compile("sgd", distance, metrics=[distance])
            keras_model.save(folder / f"{name}.keras")
        keras_model.save(folder / "row.h5")
        return folder, {"graph": model(X), "row": keras_model(X)}


@pytest.mark.exhaustive
@pytest.mark.parametrize("package", ["", "own>"])
@pytest.mark.parametrize("file", ["graph.keras", "row.keras", "row.h5"])
def test_registered_and_plain_names_resolve_to_the_same_object(files, file, package):
    folder, values = files
    custom_objects = {package + name: value for name, value in PLAIN.items()}
    model, state = fk.load_model(folder / file, custom_objects=custom_objects)
    expected = values[file.partition(".")[0]]
    np.testing.assert_allclose(model(X, state=state), expected, atol=1e-6)
    if file.endswith("keras"):
        trainer, run = fk.load_training(folder / file, custom_objects=custom_objects)
        assert trainer.evaluate(run, X, np.zeros((2, 2), "float32"), verbose=0)["loss"] > 0


def test_registered_names_take_precedence_over_plain_names(files):
    folder, _ = files
    custom_objects = {**PLAIN, "Doubled": layers.ReLU, "own>Doubled": Ours}
    model, _ = fk.load_model(folder / "row.keras", custom_objects=custom_objects)
    assert any(type(layer) is Ours for layer in model.layers.values())
    # a registered custom class does not replace a class of Keras
    x = fk.Input((3,))
    plain = fk.Model(x, layers.Dense(2)(x)).build(jax.random.key(0))
    fk.save_model(folder / "plain.keras", plain)
    restored, _ = fk.load_model(folder / "plain.keras", custom_objects={"own>Dense": Ours})
    assert restored == plain


@pytest.mark.parametrize("registered", ["own>Dense", "Custom>Dense"])
def test_a_class_of_another_package_is_not_the_built_in_of_its_name(registered):
    config = {**fk.layers.serialize(layers.Dense(2)), "registered_name": registered}
    with pytest.raises(ValueError, match=rf"class '{registered}' of another .* built-in 'Dense'"):
        fk.layers.deserialize(config)
    config["config"] = {}
    found = fk.layers.deserialize(config, custom_objects={registered: Ours})
    assert type(found) is Ours
    config = {**fk.layers.serialize(layers.Dense(2)), "registered_name": "keras>Dense"}
    assert fk.layers.deserialize(config) == layers.Dense(2)


@pytest.mark.parametrize("file", ["graph.keras", "row.keras", "row.h5"])
def test_suggested_code_is_python_and_works(files, file):
    folder, _ = files
    custom_objects = {}
    while True:
        try:
            fk.load_model(folder / file, custom_objects=custom_objects)
            break
        except fk.FileError as error:
            code = re.search(r"custom_objects=(\{[^}]*\})", str(error))[1]
            named = ast.parse(code, mode="eval").body
            name, example = named.keys[0].value, named.values[0]
            assert name not in custom_objects, error
            assert isinstance(example, ast.Lambda) or example.id in PLAIN, error
            custom_objects[name] = PLAIN[name.rpartition(">")[2]] if name != "lam" else ours
    assert custom_objects


@pytest.mark.parametrize(
    "name", ["Scale", "a>B", "my layer", "class", "a'b\"c", "x" * 300, "é>ü", "a\n"]
)
def test_code_for_any_name(name):
    ast.parse(f"f({custom_code(name)})")
