"""HDF5 files whose calls have the form of another version: the form of the calls counts."""

import io

import h5py
import jax
import numpy as np
import pytest

import fkeras as fk
from tests.support.keras_oracle import host_weights, keras, keras_rules
from tests.support.legacy_files import cases, file_bytes


def _with_version(data, version):
    target = io.BytesIO(data)
    with h5py.File(target, "r+") as file:
        file.attrs["keras_version"] = version
        file["model_weights"].attrs["keras_version"] = version
    return target.getvalue()


@pytest.mark.exhaustive
def test_calls_of_keras_2_in_a_file_of_keras_3(tmp_path):
    data = file_bytes(cases()["shared"])
    values = []
    for version in ("2.3.1", "3.15.0"):
        (tmp_path / "m.h5").write_bytes(_with_version(data, version))
        model, state = fk.load_model(tmp_path / "m.h5")
        specs = [model.graph.specs[slot] for slot in model.graph.input_slots]
        inputs = [np.ones([n or 2 for n in spec.shape], "float32") for spec in specs]
        result = model(inputs if len(inputs) > 1 else inputs[0], state=state)
        values.append(result if isinstance(result, list) else [result])
    for left, right in zip(*values, strict=True):
        np.testing.assert_allclose(left, right, atol=1e-6)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("version", ["3.15.0", "2.15.0"])
def test_calls_of_keras_3_in_a_file_of_keras_2(tmp_path, version):
    ones, rng = np.ones((2, 4, 3), "float32"), np.random.default_rng(0)
    with keras_rules(), host_weights():
        x = keras.Input((4, 3))
        y = keras.layers.LSTM(2, return_sequences=True)(x)
        y = keras.layers.Dense(2)(keras.layers.Add()([y, y]))
        theirs = keras.Model(x, y)
        for weight in theirs.weights:
            weight.assign(rng.normal(size=weight.shape).astype("float32"))
        theirs.save(tmp_path / "m.h5")
        expected = jax.jit(theirs)(ones)
    (tmp_path / "m.h5").write_bytes(_with_version((tmp_path / "m.h5").read_bytes(), version))
    model, state = fk.load_model(tmp_path / "m.h5")
    np.testing.assert_allclose(model(ones, state=state), expected, atol=1e-6)
