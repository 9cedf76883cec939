"""Frozen layers in files: the trainable weights equal those of Keras, in both directions."""

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras.host.containers.errors import FileError
from tests.support.keras_oracle import keras, keras_rules

L = keras.layers
WRAPPERS = {
    "TimeDistributed": lambda: L.TimeDistributed(L.Dense(2), name="wrapper"),
    "Bidirectional": lambda: L.Bidirectional(L.LSTM(2, return_sequences=True), name="wrapper"),
    "RNN": lambda: L.RNN([L.GRUCell(2), L.LSTMCell(3)], return_sequences=True, name="wrapper"),
    "SpectralNormalization": lambda: L.SpectralNormalization(L.Dense(2), name="wrapper"),
    "Sequential": lambda: keras.Sequential(
        [L.TimeDistributed(L.Dense(2)), L.BatchNormalization()], name="wrapper"
    ),
}


def keras_model(wrapper):
    x = keras.Input((3, 4), name="x")
    return keras.Model(x, L.Dense(1, name="head")(wrapper(L.Dense(4, name="body")(x))))


def trained_shapes(model):
    """Returns the sorted shapes of the trainable weights."""
    if isinstance(model, fk.Layer):
        return sorted(w.shape for w in fk.engine.trainable_weights(model).values())
    return sorted(tuple(v.shape) for v in model.trainable_variables)


@pytest.mark.exhaustive
@pytest.mark.parametrize("suffix", [".keras", ".h5"])
@pytest.mark.parametrize("name", WRAPPERS)
@pytest.mark.parametrize("frozen", [("wrapper",), ("body", "wrapper"), ("body",), ("",)])
def test_frozen_wrappers_of_a_file_of_keras(name, frozen, suffix, tmp_path):
    with keras_rules():
        theirs = keras_model(WRAPPERS[name]())
        for layer in frozen:
            (theirs.get_layer(layer) if layer else theirs).trainable = False
        theirs.save(tmp_path / f"theirs{suffix}")
    model, state = fk.load_model(tmp_path / f"theirs{suffix}")
    assert trained_shapes(model) == trained_shapes(theirs)
    expected = fk.unfreeze(model)
    for layer in frozen:
        expected = fk.freeze(expected, layer or "*")
    assert trained_shapes(expected) == trained_shapes(theirs)
    fk.save_model(tmp_path / "ours.keras", model, state)
    assert fk.load_model(tmp_path / "ours.keras")[0] == model
    with keras_rules():
        again = keras.models.load_model(tmp_path / "ours.keras")
    assert trained_shapes(again) == trained_shapes(theirs)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["TimeDistributed", "Bidirectional", "RNN"])
def test_wrappers_frozen_in_fkeras_are_frozen_in_keras(name, tmp_path):
    with keras_rules():
        theirs = keras_model(WRAPPERS[name]())
        theirs.save(tmp_path / "theirs.keras")
    model, state = fk.load_model(tmp_path / "theirs.keras")
    wrapper = model.layers["wrapper"].replace(trainable=False)
    model = model.replace(layers={**model.layers, "wrapper": wrapper})
    fk.save_model(tmp_path / "ours.keras", model, state)
    with keras_rules():
        again = keras.models.load_model(tmp_path / "ours.keras")
        assert again.get_layer("wrapper").trainable_variables == []
    assert trained_shapes(again) == trained_shapes(model)
    paths = list(fk.engine.trainable_weights(model))
    assert paths == ["body/kernel", "body/bias", "head/kernel", "head/bias"]


# Keras's constructors pass `trainable=False` to no layer inside
CONSTRUCTORS = {
    "TimeDistributed": lambda: L.TimeDistributed(L.Dense(2), name="wrapper", trainable=False),
    "Bidirectional": lambda: L.Bidirectional(
        L.LSTM(2, return_sequences=True), name="wrapper", trainable=False
    ),
    "RNN": lambda: L.RNN(L.GRUCell(2), return_sequences=True, name="wrapper", trainable=False),
    "a frozen layer inside": lambda: keras.Sequential(
        [L.Dense(2, trainable=False), L.BatchNormalization()], name="wrapper", trainable=False
    ),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("suffix", [".keras", ".h5"])
@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_wrappers_frozen_in_the_constructor_train_as_in_keras(name, suffix, tmp_path):
    path = tmp_path / f"theirs{suffix}"
    x = np.random.default_rng(0).normal(size=(4, 3, 4)).astype("float32")
    with keras_rules():
        theirs = keras_model(CONSTRUCTORS[name]())
        theirs.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
        y = np.ones((4, 3, 1), "float32")
        theirs.train_on_batch(x, y)
        theirs.save(path)
        theirs.train_on_batch(x, y)
        expected = theirs.predict_on_batch(x)
    if name == "a frozen layer inside" and suffix == ".h5":
        # the order of the arrays follows a flag that the layers here no longer have
        with pytest.raises(FileError, match="different orders"):
            fk.load_training(path)
        return
    trainer, run = fk.load_training(path)
    assert trained_shapes(run.model) == trained_shapes(theirs)
    run, _ = trainer.fit(run, x, y, batch_size=4, verbose=0, shuffle=False)
    np.testing.assert_allclose(trainer.predict(run, x), expected, rtol=1e-5, atol=1e-6)


def test_a_wrapper_built_frozen_is_frozen():
    """Keras's wrapper lists no trained weight, yet a model around the wrapper trains the weights."""
    model = fk.Sequential(
        [
            fk.Input((3, 4)),
            fk.layers.Dense(4),
            fk.layers.TimeDistributed(fk.layers.Dense(2), name="wrapper", trainable=False),
        ]
    ).build(jax.random.key(0))
    assert fk.engine.trainable_weights(model.layers["wrapper"]) == {}
    assert len(fk.engine.trainable_weights(model)) == 2
