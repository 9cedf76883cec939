"""The argument `check`: conversions are compared with their origin on inputs of the user."""

import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers, transforms
from fkeras.saving.export import exporting
from fkeras.transforms.deployment import folding

X = np.random.default_rng(0).normal(size=(3, 6, 6, 2)).astype("float32")
ROWS = X.reshape(6, -1)[:, :4].copy()


def network():
    x = fk.Input((6, 6, 2))
    hidden = layers.Conv2D(4, 3, name="conv")(x)
    hidden = layers.ReLU(name="relu")(layers.BatchNormalization(name="norm")(hidden))
    padded = layers.ZeroPadding2D(1)(layers.Dropout(0.5)(hidden))
    inner = fk.Input((6, 6, 4))
    block = layers.BatchNormalization(name="norm")(layers.Conv2D(3, 3, name="conv")(inner))
    hidden = fk.Model(inner, layers.Activation("tanh", name="tanh")(block), name="inner")(padded)
    hidden = layers.Dense(3, name="head")(layers.Flatten()(hidden))
    return fk.Model(x, layers.BatchNormalization(name="last")(hidden)).build(jax.random.key(0))


def dense():
    members = [layers.Dense(8, "relu", name="body"), layers.Dense(2, name="head")]
    return fk.Sequential([fk.Input((4,)), *members]).build(jax.random.key(0))


def statistics(state):
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda a: rng.uniform(0.5, 1.5, a.shape).astype(a.dtype), state)


@pytest.mark.exhaustive
def test_fold_checks_outputs_and_calls_that_stay(monkeypatch):
    model = network()
    state = statistics(model.init_state())
    folded, _ = transforms.fold(model, state, check=X)
    assert len(folded.graph.calls) < len(model.graph.calls)
    fold = folding._fold

    def faulty(model, state, where):
        new, rest, kept = fold(model, state, where)
        inner = new.layers["inner"]
        conv = inner.layers["conv"]
        wrong = inner.replace(layers={**inner.layers, "conv": conv.replace(bias=conv.bias + 0.1)})
        return new.replace(layers={**new.layers, "inner": wrong}), rest, kept

    monkeypatch.setattr(folding, "_fold", faulty)
    with pytest.raises(
        ValueError, match="transforms.fold, check: .* first in 'inner/tanh'"
    ) as caught:
        transforms.fold(model, state, check=X)
    assert "disagrees" in caught.value.__notes__[0]


@pytest.mark.exhaustive
@pytest.mark.parametrize("pattern", ["*", "body"])
def test_quantize_checks_every_call(pattern):
    model = dense()
    small = fk.quantize(model, "int8", pattern, check=ROWS)
    assert small.layers["body"].kernel.dtype == "int8"
    with pytest.raises(ValueError, match="fk.quantize, check: .* first in 'body', call 0"):
        fk.quantize(model, "int8", pattern, check=ROWS, tolerance=1e-6)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("suffix", ["jax", "onnx"])
def test_export_computes_the_file(suffix, tmp_path, monkeypatch):
    pytest.importorskip("flatbuffers" if suffix == "jax" else "onnxruntime")
    model, path = dense(), tmp_path / f"model.{suffix}"
    fk.export(model, None, path, check=ROWS)
    name = "_write_onnx" if suffix == "onnx" else "_write_model"
    write = getattr(exporting, name)

    def faulty(model, state, **arguments):
        head = jax.tree.map(lambda a: a + 1, model.layers["head"])
        return write(model.replace(layers={**model.layers, "head": head}), state, **arguments)

    monkeypatch.setattr(exporting, name, faulty)
    with pytest.raises(ValueError, match="fk.export, check: the result disagrees first in 'head'"):
        fk.export(model, None, path, check=ROWS)


@pytest.mark.parametrize("option", [{"training": True}, {"updates": True}, {"mask": (None, 4)}])
def test_export_compares_inference_only(option: Any, tmp_path):
    with pytest.raises(ValueError, match="received mask, training or updates too"):
        fk.export(dense(), None, tmp_path / "m.jax", check=ROWS, **option)


@pytest.mark.exhaustive
def test_load_model_compares_with_outputs_of_the_writer(tmp_path):
    model, path = dense(), pathlib.Path(tmp_path, "m.keras")
    fk.save_model(path, model)
    outputs = np.asarray(model(ROWS))
    loaded, _ = fk.load_model(path, check=(ROWS, outputs))
    assert loaded == model
    with pytest.raises(ValueError, match="fk.load_model, check: .* first in 'head'"):
        fk.load_model(path, check=(ROWS, outputs + 1))
    body = jax.nn.relu(model.layers["body"](ROWS)) + 1
    with pytest.raises(ValueError, match="first in 'body', call 0"):
        fk.load_model(path, check=(ROWS, {"body_ib-0": body}))
    wrong: Any
    for wrong in (ROWS, (ROWS,), 3):
        with pytest.raises(TypeError, match=r"load_model: expected check=\(inputs, outputs\)"):
            fk.load_model(path, check=wrong)


@pytest.mark.exhaustive
def test_keras_models_are_compared_both_ways(monkeypatch):
    keras = pytest.importorskip("keras")
    from tests.support.keras_oracle import keras_rules

    with keras_rules():
        inputs = keras.Input((4,))
        wrong = keras.Model(inputs, keras.layers.Dense(2, name="head")(inputs))
        model, state = fk.from_keras(wrong, check=ROWS)
        fk.to_keras(model, state, check=ROWS)
        changed = model.replace(
            layers={**model.layers, "head": jax.tree.map(lambda a: a + 1, model.layers["head"])}
        )
        monkeypatch.setattr("fkeras.saving.conversion.load_model", lambda *_, **__: (changed, {}))
        with pytest.raises(ValueError, match="fk.from_keras, check: .* first in 'head'"):
            fk.from_keras(wrong, check=ROWS)
        monkeypatch.setattr("keras.saving.load_model", lambda *_, **__: wrong)
        with pytest.raises(ValueError, match="fk.to_keras, check: .* first in 'head'"):
            fk.to_keras(changed, state, check=jnp.asarray(ROWS))
