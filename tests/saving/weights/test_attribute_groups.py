"""Files of Keras layers made of layers, opened with `fk.Model` classes that make layers in `call`."""

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from tests.support.keras_oracle import host_weights, keras, keras_rules

X = np.random.default_rng(0).normal(size=(3, 5, 4)).astype("float32")


class _Keras(keras.layers.Layer):
    """A base class: `make` makes the attributes, in this order."""

    def __init__(self, units=4, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        for name, layer in self.make(keras.layers).items():
            setattr(self, name, layer)

    def get_config(self):
        return {**super().get_config(), "units": self.units}


class Inner(_Keras):
    def make(self, kl):
        return {"z": kl.Dense(self.units), "a": kl.Dense(self.units, activation="tanh")}

    def call(self, x):
        return self.z(self.a(x))


class Outer(_Keras):
    def make(self, kl):
        return {
            "norm": kl.BatchNormalization(name="statistics"),
            "rnn": kl.Bidirectional(kl.LSTM(2, return_sequences=True)),
            "inner": Inner(self.units),
            "d": kl.Dense(self.units, use_bias=False),
        }

    def call(self, x):
        return self.d(self.inner(self.rnn(self.norm(x))))


class InnerModel(fk.Model):
    units: int

    def call(self, x):
        x = layers.Dense(self.units, activation="tanh", name="a")(x)
        return layers.Dense(self.units, name="z")(x)


class OuterModel(fk.Model):
    units: int

    def call(self, x):
        # the name of Keras's layer, not of the attribute
        x = layers.BatchNormalization(name="statistics")(x)
        x = layers.Bidirectional(layers.LSTM(2, return_sequences=True), name="rnn")(x)
        return layers.Dense(self.units, use_bias=False, name="d")(
            InnerModel(self.units, name="inner")(x)
        )


class FieldModel(fk.Model):
    units: int
    inner: fk.Layer

    def call(self, x):
        x = layers.BatchNormalization(name="norm")(x)
        x = layers.Bidirectional(layers.LSTM(2, return_sequences=True), name="rnn")(x)
        return layers.Dense(self.units, use_bias=False, name="d")(self.inner(x))

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return cls(config["units"], InnerModel(config["units"]), name=config["name"])


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """A Keras model and the folder of its files."""
    folder = tmp_path_factory.mktemp("composed")
    with keras_rules(), host_weights():
        x = keras.Input(X.shape[1:])
        y = Outer(3, name="two")(Outer(4, name="one")(x))
        model = keras.Model(x, keras.layers.Dense(2, name="head")(y))
        rng = np.random.default_rng(1)
        for weight in model.weights:
            weight.assign(rng.uniform(0.1, 1, weight.shape).astype("float32"))
        model.save(folder / "m.keras")
        model.save_weights(folder / "m.weights.h5")
        return model, folder


@pytest.mark.exhaustive
@pytest.mark.parametrize("cls", [OuterModel, FieldModel])
def test_composed_layers_open_by_the_names_of_attributes(theirs, cls):
    composed, folder = theirs
    with keras_rules():
        expected = jax.jit(composed)(X)
    custom = {"Outer": cls, "Inner": InnerModel}
    model, state = fk.load_model(folder / "m.keras", custom_objects=custom)
    np.testing.assert_allclose(model(X, state=state), expected, atol=2e-6)
    model, state = fk.load_weights(folder / "m.weights.h5", fk.engine.unbuilt(model))
    np.testing.assert_allclose(model(X, state=state), expected, atol=2e-6)


def test_other_names_are_an_error_with_the_names_in_the_file(theirs):
    class Other(fk.Model):
        units: int

        def call(self, x):
            return layers.Dense(self.units, name="other")(x)

    with pytest.raises(
        fk.FileError,
        match=r"layers/outer/d/vars/0.* none for .*one/other/kernel.*names of the attributes",
    ):
        fk.load_model(theirs[1] / "m.keras", custom_objects={"Outer": Other})
    x = fk.Input(X.shape[1:])
    model = fk.Model(x, Other(4, name="one")(x))
    with pytest.raises(fk.FileError, match="missing in the file: one/other/kernel"):
        fk.load_weights(theirs[1] / "m.weights.h5", model)


@pytest.mark.exhaustive
@pytest.mark.parametrize("base", [keras.layers.Layer, keras.Model])
def test_a_subclass_alone_has_its_layers_at_the_attributes(tmp_path, key, base):
    class Alone(base):
        def __init__(self):
            super().__init__()
            self.b, self.d = keras.layers.Dense(4), keras.layers.Dense(4)

        def call(self, x):
            return self.b(self.d(x))

    class AloneModel(fk.Model):
        def call(self, x):
            return layers.Dense(4, name="b")(layers.Dense(4, name="d")(x))

    with keras_rules():
        alone = Alone()
        expected = np.asarray(alone(X))
        alone = alone if base is keras.Model else keras.Sequential([alone])
        alone.build(X.shape)
        alone.save_weights(tmp_path / "m.weights.h5")
    model = AloneModel(name="alone")
    if base is not keras.Model:
        model = fk.Sequential([model])
    model = model.build(key, X)
    model, state = fk.load_weights(tmp_path / "m.weights.h5", model)
    np.testing.assert_allclose(model(X, state=state), expected, atol=2e-6)


@pytest.mark.exhaustive
def test_own_files_open_with_and_without_the_classes(tmp_path, key):
    x = fk.Input(X.shape[1:])
    model = fk.Model(x, FieldModel(4, InnerModel(4), name="m")(x)).build(key)
    state = model.init_state()
    expected = model(X, state=state)
    fk.save_model(tmp_path / "m.keras", model, state)
    fk.save_weights(tmp_path / "m.weights.h5", model, state)
    for again, its_state in (
        fk.load_model(tmp_path / "m.keras"),
        fk.load_weights(tmp_path / "m.weights.h5", fk.engine.unbuilt(model)),
    ):
        np.testing.assert_array_equal(again(X, state=its_state), expected)
