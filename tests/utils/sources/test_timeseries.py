"""Windows of a time series: Keras's windows in Keras's order."""

import numpy as np
import pytest

import fkeras as fk
from tests.support.keras_oracle import keras, keras_rules

pytest.importorskip("grain")
DATA = np.arange(40, dtype="float32").reshape(20, 2)
TARGETS = np.arange(100, 120)
WINDOWS = fk.utils.timeseries_dataset_from_array


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sequence_stride": 3, "sampling_rate": 2},
        {"batch_size": None},
        {"shuffle": True, "seed": 5},
        {"start_index": 4},
        {"end_index": 15},
        {"start_index": 3, "end_index": 17, "shuffle": True, "seed": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("targets", [None, TARGETS, TARGETS[:9]], ids=["none", "all", "nine"])
def test_windows_equal_keras(options, targets):
    options = {"batch_size": 4, **options}
    if targets is not None and len(targets) == 9 and "start_index" in options:
        targets = TARGETS  # Keras counts targets before start_index, and then has too few
    ours = WINDOWS(DATA, targets, 4, **options)
    with keras_rules():
        theirs = keras.utils.timeseries_dataset_from_array(
            DATA, targets, 4, format="grain", **options
        )
        theirs = [[np.asarray(a) for a in (b if targets is not None else (b,))] for b in theirs]
    ours = [list(b) if targets is not None else [b] for b in ours]
    assert len(ours) == len(theirs)
    for batch, expected in zip(ours, theirs, strict=True):
        for array, keras_array in zip(batch, expected, strict=True):
            np.testing.assert_array_equal(array, keras_array)


def test_windows_have_the_dtype_of_the_series():
    (windows,) = WINDOWS(np.arange(6), None, 6)
    assert windows.dtype == np.arange(6).dtype and windows.shape == (1, 6)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": 3}, "data: expected an array whose axis 0 is time"),
        ({"data": [[1], [1, 2]]}, "data: expected an array"),
        ({"data": DATA[:3]}, "expected 4 time steps or more"),
        ({"targets": []}, "and 0 targets"),
        ({"targets": 3}, "targets: expected an array"),
        ({"sequence_length": 0}, "sequence_length: expected a positive integer"),
        ({"sequence_length": 21}, "expected 21 time steps or more"),
        ({"sampling_rate": 9}, "expected 28 time steps or more"),
        ({"sampling_rate": 0}, "sampling_rate: expected a positive integer"),
        ({"sequence_stride": 0.5}, "sequence_stride: expected a positive integer"),
        ({"batch_size": 0}, "batch_size: expected a positive integer"),
        ({"start_index": -1}, "start_index: expected an integer"),
        ({"start_index": 20}, "received 20 and 20"),
        ({"start_index": 5, "end_index": 5}, "received 5 and 5"),
        ({"end_index": 21}, "received 0 and 21"),
        ({"format": "tf"}, "TensorFlow's datasets"),
        ({"shuffle": None}, "shuffle: expected"),
        ({"seed": "a"}, "seed: expected"),
    ],
    ids=str,
)
def test_invalid_arguments_are_reported(options, message):
    with pytest.raises(ValueError, match=f"timeseries_dataset_from_array: .*{message}|{message}"):
        WINDOWS(**{"data": DATA, "targets": TARGETS, "sequence_length": 4, **options})
