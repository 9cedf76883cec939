"""`pad_sequences` returns Keras's arrays."""

import numpy as np
import pytest

import fkeras as fk
from tests.support.keras_oracle import keras

SEQUENCES = [[1], [2, 3, 4], [], [5, 6]]


@pytest.mark.one_in(12)
@pytest.mark.parametrize("maxlen", [None, 2, 5])
@pytest.mark.parametrize("padding", ["pre", "post"])
@pytest.mark.parametrize("truncating", ["pre", "post"])
def test_sequences_are_padded_as_in_keras(maxlen, padding, truncating):
    options = {"maxlen": maxlen, "padding": padding, "truncating": truncating, "value": 9}
    expected = keras.utils.pad_sequences(SEQUENCES, **options)
    padded = fk.utils.pad_sequences(SEQUENCES, **options)
    assert padded.dtype == expected.dtype
    np.testing.assert_array_equal(padded, expected)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("sequences", "options"),
    [
        ([["a"], ["bc", "d"]], {"dtype": object, "value": "pad"}),
        ([["a"], ["bc", "d"]], {"dtype": "<U3", "value": "x"}),
        ([[0.5], [1.5, 2.5]], {"dtype": "float32", "value": -1.0}),
        ([np.ones((2, 3)), np.ones((1, 3))], {"dtype": "float32"}),
        (np.asarray([[1, 2], [3, 4]]), {"maxlen": 3}),
        (((1, 2), (3,)), {"dtype": "int64"}),
    ],
    ids=["objects", "strings", "floats", "vectors", "array", "tuples"],
)
def test_strings_floats_and_vectors_are_padded_as_in_keras(sequences, options):
    expected = keras.utils.pad_sequences(sequences, **options)
    padded = fk.utils.pad_sequences(sequences, **options)
    assert padded.dtype == expected.dtype
    np.testing.assert_array_equal(padded, expected)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("sequences", "options", "message"),
    [
        ([], {}, "expected sequences, received none"),
        (3, {}, "expected a list of sequences"),
        ("abc", {}, "expected a list of sequences"),
        pytest.param(iter([[1]]), {}, r"Write list\(generator\)", id="an iterator"),
        ([1, 2], {}, "expected a sequence at position 0"),
        (["ab"], {}, "expected a sequence at position 0"),
        ([[[1], [1, 2]]], {}, "elements of one shape in sequence 0"),
        ([[[1, 2]], [[1]]], {}, r"elements of shape \(2,\) as in the first"),
        ([[0.5]], {}, "numbers that int32 holds in sequence 0, received 0.5"),
        ([[300]], {"dtype": "int8"}, "numbers that int8 holds"),
        ([["a"]], {}, "Write dtype=object"),
        ([[1]], {"value": "a"}, "expected a number as value"),
        ([[1]], {"value": 0.5}, "numbers that int32 holds in value"),
        ([[1]], {"dtype": "int33"}, "expected a dtype"),
        ([[1]], {"maxlen": 0}, "maxlen: expected a positive integer"),
        ([[1]], {"padding": "before"}, "padding: expected 'pre' or 'post'"),
        ([[1]], {"truncating": None}, "truncating: expected 'pre' or 'post'"),
    ],
    ids=str,
)
def test_invalid_arguments_are_reported(sequences, options, message):
    with pytest.raises(ValueError, match=f"pad_sequences: .*{message}|{message}"):
        fk.utils.pad_sequences(sequences, **options)
