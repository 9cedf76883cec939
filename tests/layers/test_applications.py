"""Round trips of the smallest models of `keras.applications`; `tools/stress/applications.py` tests all."""

import importlib

import numpy as np
import pytest

import fkeras as fk
from tests.support.keras_oracle import keras, keras_rules
from tests.support.quick_cases import quick_cases
from tools.stress import applications

SMALLEST = {
    "MobileNet": {"alpha": 0.25},
    "MobileNetV2": {"alpha": 0.35},
    "MobileNetV3Small": {"alpha": 0.75},
    "MobileNetV3Large": {"alpha": 0.75},
    "EfficientNetB0": {},
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", quick_cases(SMALLEST, "MobileNetV2"))
def test_the_smallest_models_round_trip(name, tmp_path):
    with keras_rules():
        errors = applications.check(name, tmp_path, **SMALLEST[name])
    assert max(errors) <= applications.LIMIT, errors


def test_the_list_has_every_model_of_keras():
    names = {n for n in dir(keras.applications) if n[0].isupper()}
    assert names == set(applications.NAMES)


@pytest.mark.exhaustive
def test_custom_layers_of_applications(tmp_path, key):
    ours, theirs = tmp_path / "ours.keras", tmp_path / "theirs.keras"
    x = np.linspace(-1, 1, 18, dtype="float32").reshape(6, 3)
    with keras_rules():
        convnext, inception = (
            importlib.import_module(f"keras.src.applications.{name}")
            for name in ("convnext", "inception_resnet_v2")
        )
        inputs = keras.Input((3,))
        h = convnext.StochasticDepth(0.5)(convnext.LayerScale(0.25, 3)(inputs))
        model = keras.Model(inputs, inception.CustomScaleLayer(0.5)([inputs, h]))
        model.save(theirs)
        expected = np.asarray(model(x))
    model, state = fk.load_model(theirs)
    np.testing.assert_allclose(model(x), expected, rtol=1e-6)
    trained = np.asarray(model.apply(x, state=state, training=True, key=key).value)
    factors = {tuple(row) for row in np.round(trained / x, 5).tolist()}
    assert factors == {
        (1.0, 1.0, 1.0),
        (1.25, 1.25, 1.25),
    }  # drops whole rows: x + 0.5 * 0.25 x / 0.5
    fk.save_model(ours, model, state)
    assert fk.load_model(ours)[0] == model
    with keras_rules():
        np.testing.assert_array_equal(keras.models.load_model(ours)(x), expected)
