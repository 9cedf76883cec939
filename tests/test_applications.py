"""The five smallest models of `keras.applications`, there and back; a script checks all."""

import importlib.util
import pathlib

import pytest

from tests.keras_oracle import keras, keras_rules

_PATH = pathlib.Path(__file__).parents[1] / "tools" / "applications.py"
_SPEC = importlib.util.spec_from_file_location("applications", _PATH)
applications = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(applications)

# the two with most layers are like the others in training, and cost as much as those again
SMALLEST = {
    "MobileNet": {"alpha": 0.25},
    "MobileNetV2": {"alpha": 0.35},
    "MobileNetV3Small": {"alpha": 0.75},
    "MobileNetV3Large": {"alpha": 0.75, "training": False},
    "EfficientNetB0": {"training": False},
}


@pytest.mark.parametrize("name", SMALLEST)
def test_the_smallest_models_go_there_and_back(name, tmp_path):
    with keras_rules():
        errors = applications.check(name, tmp_path, **SMALLEST[name])
    assert max(errors) <= applications.LIMIT, errors


def test_the_list_has_every_model_of_keras():
    found = {n for n in dir(keras.applications) if n[0].isupper()}
    assert found == set(applications.NAMES)
