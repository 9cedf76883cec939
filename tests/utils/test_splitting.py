"""`split_dataset` assigns samples to parts as Keras, and preserves the structure of the dataset."""

import random

import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from tests.support.keras_oracle import keras

X = np.arange(10)


def _keras_sizes(left, right):
    from keras.src.utils import dataset_utils

    return dataset_utils._rescale_dataset_split_sizes(left, right, 10)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("left", "right"),
    [(0.8, None), (None, 0.25), (3, None), (None, 3), (0.5, 0.2), (4, 5), (0.35, 0.65), (4, 0.3)],
)
@pytest.mark.parametrize("shuffle", [False, True])
def test_parts_equal_keras(left, right, shuffle):
    # Keras returns datasets of TensorFlow, so the test computes its sizes and its order
    order = list(X)
    if shuffle:
        random.Random(7).shuffle(order)
    left_count, right_count = _keras_sizes(left, right)
    ours = fk.utils.split_dataset(X, left, right, shuffle=shuffle, seed=7)
    np.testing.assert_array_equal(ours[0], order[:left_count])
    np.testing.assert_array_equal(ours[1], order[-right_count:])


@pytest.mark.exhaustive
def test_parts_have_the_structure_of_the_dataset():
    data = {"a": X, "b": [X + 10, (jnp.asarray(X) + 20, [*range(30, 40)])]}
    left, right = fk.utils.split_dataset(data, right_size=2, shuffle=True, seed=1)
    for part, count in ((left, 8), (right, 2)):
        a, (b, (c, d)) = part["a"], part["b"]
        assert len(a) == count
        np.testing.assert_array_equal(a + 10, b)
        np.testing.assert_array_equal(a + 20, c)
        np.testing.assert_array_equal(a + 30, d)
    assert sorted([*left["a"], *right["a"]]) == list(X)


@pytest.mark.exhaustive
@pytest.mark.parametrize("shuffle", [False, True])
def test_datasets_of_grain_are_split(shuffle):
    grain = pytest.importorskip("grain")
    dataset = grain.MapDataset.source(X).map(lambda row: row * 2)
    parts = fk.utils.split_dataset(dataset, 0.7, shuffle=shuffle, seed=3)
    arrays = fk.utils.split_dataset(X * 2, 0.7, shuffle=shuffle, seed=3)
    for part, array in zip(parts, arrays, strict=True):
        assert [int(row) for row in part] == array.tolist()


@pytest.mark.parametrize("total", [5, 7])  # 2.5 rounds down to 2, and 3.5 rounds up to 4
def test_halves_of_an_odd_number_of_samples_do_not_overlap(total):
    left, right = fk.utils.split_dataset(np.arange(total), 0.5, 0.5)
    assert not set(left.tolist()) & set(right.tolist())
    assert [len(left), len(right)] == {5: [2, 2], 7: [4, 3]}[total]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("data", "options", "error", "message"),
    [
        (X, {}, ValueError, "left_size or right_size, received neither"),
        (X, {"left_size": 10}, ValueError, "10 and 0 samples"),
        (X, {"left_size": 11}, ValueError, "11 and -1 samples"),
        (X, {"left_size": 0.01}, ValueError, "0 and 10 samples"),
        (X, {"left_size": 6, "right_size": 5}, ValueError, "6 and 5 samples"),
        (X, {"left_size": 0.9, "right_size": 0.9}, ValueError, "9 and 9 samples"),
        (X, {"left_size": 0}, ValueError, "left_size: expected a number between 0 and 1, or"),
        (X, {"left_size": -0.5}, ValueError, "left_size: expected"),
        (X, {"left_size": np.nan}, ValueError, "left_size: expected"),
        (X, {"right_size": "half"}, ValueError, "right_size: expected"),
        (X, {"left_size": True}, ValueError, "left_size: expected"),
        (X, {"left_size": 2, "shuffle": 1}, ValueError, "shuffle: expected True or False"),
        (X, {"left_size": 2, "seed": 0.5}, ValueError, "seed: expected an integer"),
        ((X, X[:5]), {"left_size": 2}, ValueError, r"received \[10, 5\]"),
        ([], {"left_size": 2}, ValueError, "expected arrays"),
        (X[:1], {"left_size": 0.5}, ValueError, "two or more"),
        (3, {"left_size": 2}, TypeError, "received 3"),
        ("text", {"left_size": 2}, TypeError, "received 'text'"),
        pytest.param(
            (X for _ in "a"), {"left_size": 2}, TypeError, "Collect a stream", id="a generator"
        ),
    ],
    ids=str,
)
def test_invalid_arguments_are_reported(data, options, error, message):
    with pytest.raises(error, match=message):
        fk.utils.split_dataset(data, **options)


def test_argument_names_equal_keras():
    import inspect

    keras_names = list(inspect.signature(keras.utils.split_dataset).parameters)
    assert list(inspect.signature(fk.utils.split_dataset).parameters) == keras_names[:-1]
