"""Models of Keras become models of fkeras, and the other way round, with equal outputs."""

import subprocess
import sys

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from tests.support.keras_oracle import keras, keras_rules


def _keras_model(own=None):
    inputs = keras.Input((4,), name="x")
    h = keras.layers.Dense(3, name="dense")(inputs)
    h = keras.layers.BatchNormalization(name="norm")(h)
    if own is not None:
        h = own(h)
    model = keras.Model(inputs, keras.layers.Dense(2, name="out")(h), name="net")
    model.layers[2].set_weights([np.full(3, value, "float32") for value in (2, 1, 3, 4)])
    return model


X = np.linspace(-1, 1, 12, dtype="float32").reshape(3, 4)


@pytest.mark.exhaustive
def test_a_model_of_keras_there_and_back():
    with keras_rules():
        theirs = _keras_model()
        theirs.compile("adam", "mse")
        expected = np.asarray(theirs(X))
        model, state = fk.from_keras(theirs)
        np.testing.assert_allclose(model(X, state=state), expected, rtol=1e-5)
        np.testing.assert_array_equal(state["norm"]["moving_mean"], np.full(3, 3.0))
        again = fk.to_keras(model, state)
        assert isinstance(again, keras.Model) and again.name == "net"
        np.testing.assert_allclose(again(X), expected, rtol=1e-6)
        theirs.set_weights([np.zeros(w.shape, "float32") for w in theirs.weights])  # a copy
        np.testing.assert_allclose(model(X, state=state), expected, rtol=1e-5)


@pytest.mark.exhaustive
def test_sequential_models():
    with keras_rules():
        theirs = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        model, state = fk.from_keras(theirs)
        assert isinstance(model, fk.Sequential) and state == {}
        np.testing.assert_allclose(model(X), theirs(X), rtol=1e-6)
    ours = fk.Sequential([fk.Input((4,)), layers.Dense(2)]).build(jax.random.key(0))
    with keras_rules():
        theirs = fk.to_keras(ours)
        assert isinstance(theirs, keras.Sequential) and not theirs.compiled
        np.testing.assert_allclose(theirs(X), ours(X), rtol=1e-6)


class Doubled(fk.Layer):
    def call(self, x):
        return 2 * x


def test_custom_layers_are_passed_by_name():
    class Doubled(keras.layers.Layer):
        def call(self, x):
            return 2 * x

    with keras_rules():
        theirs = _keras_model(Doubled(name="double"))
        expected = np.asarray(theirs(X))
        with pytest.raises(fk.FileError, match=r"^config.json.*from_keras: .*Doubled") as caught:
            fk.from_keras(theirs)
        assert caught.value.file is None and "custom_objects" in str(caught.value)
        model, state = fk.from_keras(theirs, custom_objects={"Doubled": globals()["Doubled"]})
        np.testing.assert_allclose(model(X, state=state), expected, rtol=1e-5)
        again = fk.to_keras(model, state, custom_objects={"Doubled": Doubled})
        np.testing.assert_allclose(again(X), expected, rtol=1e-6)


def _dense():
    return fk.Sequential([fk.Input((4,)), layers.BatchNormalization()])


ERRORS = (
    (lambda: fk.from_keras("m.keras"), TypeError, r"received 'm.keras'.*fk.load_model"),
    (lambda: fk.from_keras(None), TypeError, "expected a Keras model, received None"),
    (lambda: fk.from_keras(_dense()), TypeError, "belongs to fkeras already"),
    (lambda: fk.from_keras(keras.Model), TypeError, "received the class Model"),
    (lambda: fk.from_keras(keras.layers.Dense(2)), TypeError, "expected a Keras model"),
    (lambda: fk.to_keras(keras.Sequential()), TypeError, "belongs to Keras already"),
    (lambda: fk.to_keras(layers.Dense(2)), TypeError, "expected an fk.Model or fk.Sequential"),
    (lambda: fk.to_keras(_dense()), ValueError, "expected a built model"),
    (
        lambda: fk.to_keras(_dense().build(jax.random.key(0))),
        ValueError,
        "expected the state of batch_normalization",
    ),
)


@pytest.mark.parametrize(("call", "kind", "message"), ERRORS)
def test_errors_name_the_value_and_a_remedy(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


@pytest.mark.exhaustive
def test_without_an_import_of_keras():
    program = (
        "import fkeras as fk, jax, sys\n"
        "model = fk.Sequential([fk.Input((2,)), fk.layers.Dense(1)]).build(jax.random.key(0))\n"
        "try:\n    fk.to_keras(model)\n"
        "except ImportError as error:\n    print(error)\n"
        "assert 'keras' not in sys.modules and 'fkeras.applications' not in sys.modules"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "Write `import keras` before the call" in run.stdout
