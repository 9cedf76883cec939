"""Arrays in files: dtypes, and one warning for NaN and infinity."""

import io
import warnings

import h5py
import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from tests.support.legacy_files import model_file

MODEL = fk.Sequential(
    [fk.Input((3,)), layers.BatchNormalization(name="norm"), layers.Dense(2, name="d")]
).build(jax.random.key(0))
STATE = MODEL.init_state()


def _legacy(kernel):
    items = [
        {"class_name": "Dense", "config": {"name": "d", "units": 2, "batch_input_shape": [None, 3]}}
    ]
    config = {"class_name": "Sequential", "config": {"name": "s", "layers": items}}
    arrays = {"d/kernel:0": kernel, "d/bias:0": np.zeros(2, "float32")}
    return model_file(config, {"d": arrays})


@pytest.mark.parametrize("kind", ["int8", "int32", "uint8", "bool"])
def test_integer_and_boolean_weights_are_rejected(tmp_path, kind):
    fk.save_weights(tmp_path / "w.weights.h5", MODEL, STATE)
    with h5py.File(tmp_path / "w.weights.h5", "r+") as file:
        del file["layers/dense/vars/0"]
        file["layers/dense/vars/0"] = np.ones((3, 2), kind)
    with pytest.raises(fk.FileError, match=f"d/kernel float32 \\(file: {kind}"):
        fk.load_weights(tmp_path / "w.weights.h5", MODEL)
    (tmp_path / "m.h5").write_bytes(_legacy(np.ones((3, 2), kind)))
    with pytest.raises(fk.FileError, match=f"'d/kernel'.*float32, received {kind}"):
        fk.load_model(tmp_path / "m.h5")
    np.savez(tmp_path / "w.npz", **{"weights/d/kernel": np.ones((3, 2), kind)})
    with pytest.raises(fk.FileError, match=f"d/kernel float32 \\(file: {kind}"):
        fk.load_weights(tmp_path / "w.npz", MODEL)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["m.keras", "w.weights.h5", "w.npz", "w.safetensors", "m.h5"])
def test_one_warning_lists_weights_that_are_not_finite(tmp_path, name):
    path = tmp_path / name
    kernel = np.array([[np.nan, 1.0]] * 3, "float32")
    values = [w.copy() for w in MODEL.get_weights(STATE)]
    values[0][1], values[4] = np.inf, kernel
    model, state = MODEL.set_weights(values, STATE)
    expected = ["d/kernel", "norm/gamma"]
    if name == "m.keras":
        fk.save_model(path, model, state)
    elif name == "m.h5":
        path.write_bytes(_legacy(kernel))
        expected = ["d/kernel"]
    else:
        fk.save_weights(path, model, state)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if name.startswith("m."):
            fk.load_model(path)
        else:
            _ = fk.load_weights(path, MODEL, STATE)
    texts = [str(w.message) for w in caught if "NaN" in str(w.message)]
    assert len(texts) == 1 and all(part in texts[0] for part in (*expected, str(path)))
    assert "bias" not in texts[0] and "moving" not in texts[0]


@pytest.mark.exhaustive
def test_finite_weights_give_no_warning(tmp_path):
    largest = [np.full_like(w, np.finfo("float32").max) for w in MODEL.get_weights(STATE)]
    model, state = MODEL.set_weights(largest, STATE)
    fk.save_model(tmp_path / "m.keras", model, state)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fk.load_model(tmp_path / "m.keras")


def test_float_arrays_of_another_width_are_converted(tmp_path):
    target = io.BytesIO(_legacy(np.ones((3, 2), "float16")))
    (tmp_path / "m.h5").write_bytes(target.getvalue())
    assert fk.load_model(tmp_path / "m.h5")[0].layers["d"].kernel.dtype == "float32"
