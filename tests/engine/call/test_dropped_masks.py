"""Masks for layers without mask support: dropped in Keras's files, an error in user code."""

import warnings

import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from tests.support.keras_oracle import keras, keras_rules

IDS = np.array([[1, 2, 3, 0, 0], [4, 0, 0, 0, 0]], "int32")
VECTORS = np.linspace(-1, 1, 30, dtype="float32").reshape(2, 5, 3)


def _embedded():
    ids = keras.Input((5,), dtype="int32")
    return ids, keras.layers.Embedding(10, 3, mask_zero=True)(ids)


def _inside(inner):
    ids, x = _embedded()
    return keras.Model(ids, inner(x))


def _row(*members):
    return keras.Sequential([keras.Input((5, 3)), *members])


def _row_of_words(*members):
    first = keras.layers.Embedding(10, 3, mask_zero=True)
    return keras.Sequential([keras.Input((5,), dtype="int32"), first, *members])


def _model(function):
    x = keras.Input((5, 3))
    return keras.Model(x, function(x))


def _exponential():
    return _model(lambda x: keras.layers.LSTM(2)(keras.ops.exp(x) * 2.0))


def _flatten():
    return _row(keras.layers.Flatten(), keras.layers.Dense(2))


def _twice():
    inner, (ids, x), vectors = _exponential(), _embedded(), keras.Input((5, 3))
    outputs = keras.layers.Concatenate()([inner(vectors), inner(x)])
    return keras.Model([ids, vectors], outputs)


def _part(x):
    x = keras.layers.Add()([x, keras.layers.Masking()(x)])
    return keras.layers.LSTM(2)(x)


MODELS = {
    "a row": lambda: _row_of_words(keras.layers.Conv1D(2, 2), keras.layers.Flatten()),
    "a row in a graph": lambda: _inside(_flatten()),
    "a row in a row": lambda: _row_of_words(_flatten()),
    "operations in a graph": lambda: _inside(_exponential()),
    "operations in a row": lambda: _row_of_words(_exponential()),
    "kept": lambda: _inside(_row(keras.layers.Dense(2), keras.layers.LSTM(2))),
    "a sum of which a part has none": lambda: _inside(_model(_part)),
    "deep inside": lambda: _inside(_model(lambda x: _flatten()(_row(keras.layers.Dense(3))(x)))),
    "called with and without": _twice,
}


# files of both kinds are read into one form: CI opens each model from both
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        *((name, "keras") for name in MODELS),
        ("a row", "h5"),
        *(pytest.param(n, "h5", marks=pytest.mark.exhaustive) for n in MODELS if n != "a row"),
    ],
)
def test_masks_are_dropped_where_keras_drops_them(name, suffix, tmp_path):
    path, saved_path = tmp_path / f"theirs.{suffix}", tmp_path / "ours.keras"
    inputs = [IDS, VECTORS] if name == "called with and without" else IDS
    with keras_rules(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of lost masks, and of the old format
        model = MODELS[name]()
        model.save(path)
        expected = np.asarray(model(inputs))
    model, state = fk.load_model(path)
    np.testing.assert_allclose(model.apply(inputs, state=state).value, expected, rtol=1e-6)
    fk.save_model(saved_path, model, state)
    assert fk.load_model(saved_path)[0] == model
    with keras_rules(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reloaded_outputs = np.asarray(keras.models.load_model(saved_path)(inputs))
    np.testing.assert_array_equal(reloaded_outputs, expected)


@pytest.mark.exhaustive
def test_a_sequential_that_drops_masks_can_be_edited(tmp_path, key):
    with keras_rules(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        MODELS["a row"]().save(tmp_path / "row.keras")
    model, _ = fk.load_model(tmp_path / "row.keras")
    assert model._mask_rule == "keras"
    longer = model.add(layers.Dense(2)).build(key)
    assert longer(IDS).shape == (2, 2)
    assert longer.pop() == model
    assert model[:1]._mask_rule == "keras"
    assert model[:1](IDS).shape == (2, 5, 3)
    assert model[1:](VECTORS).shape == model(IDS).shape


def test_new_models_reject_a_dropped_mask():
    first = layers.Embedding(10, 3, mask_zero=True)
    with pytest.raises(fk.FKerasError, match="received a mask, and this layer has no mask support"):
        fk.Sequential([fk.Input((5,), dtype="int32"), first, layers.Flatten()])
    inner = fk.Sequential([fk.Input((5, 3)), layers.Flatten()])
    with pytest.raises(fk.FKerasError, match="received a mask, and this layer has no mask support"):
        inner(first(fk.Input((5,), dtype="int32")))


@pytest.mark.exhaustive
@pytest.mark.parametrize("in_a_row", [True, False])
def test_masks_that_keras_drops_are_restored_from_files_of_fkeras(in_a_row, tmp_path, key):
    x = fk.Input((5, 3))
    inner = fk.Model(x, layers.LSTM(2)(fk.ops.exp(x) * 2.0), name="inner")
    first = layers.Embedding(10, 3, mask_zero=True)
    start = fk.Input((5,), dtype="int32")
    if in_a_row:
        model = fk.Sequential([start, first, inner]).build(key)
    else:
        model = fk.Model(start, inner(first(start))).build(key)
    fk.save_model(tmp_path / "kept.keras", model, model.init_state())
    loaded, _ = fk.load_model(tmp_path / "kept.keras")
    assert loaded == model
    np.testing.assert_array_equal(loaded(IDS), model(IDS))
    # the padding does not reach the LSTM, as it would without the mask
    shorter = fk.Sequential([fk.Input((1, 3)), layers.LSTM(2)]).build(key)
    shorter = shorter.replace(
        layers={**shorter.layers, "lstm": loaded.layers["inner"].layers["lstm"]}
    )
    step = np.exp(loaded.layers["embedding"].embeddings[4])[None, None] * 2
    np.testing.assert_allclose(loaded(IDS)[1:], shorter(step), rtol=1e-6)
