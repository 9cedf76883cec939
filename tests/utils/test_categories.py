"""`to_categorical` and `normalize` compute Keras's numbers; invalid class numbers are rejected."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from tests.support.keras_oracle import keras, keras_rules


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("x", "count"),
    [
        ([0, 2, 1], None),
        ([0, 2, 1], 5),
        ([[0], [3]], None),
        ([[0, 1], [3, 3]], 4),
        (np.zeros((2, 3, 1), "uint8"), 2),
        ([1.0, 0.0], None),
        ([True, False], None),
        (1, 3),
        ([], 3),
    ],
    ids=str,
)
def test_one_hot_vectors_equal_keras(x, count):
    expected = keras.utils.to_categorical(x, count)
    vectors = fk.utils.to_categorical(x, count)
    assert vectors.dtype == expected.dtype
    np.testing.assert_array_equal(vectors, expected)


@pytest.mark.exhaustive
def test_jax_arrays_give_jax_arrays():
    vectors = fk.utils.to_categorical(jnp.asarray([[0], [2]]))
    assert isinstance(vectors, jax.Array) and vectors.shape == (2, 3)
    compiled = jax.jit(lambda x: fk.utils.to_categorical(x, 3))(jnp.asarray([0, 2]))
    np.testing.assert_array_equal(compiled, vectors)
    with pytest.raises(ValueError, match="num_classes for an array inside of jax.jit"):
        jax.jit(fk.utils.to_categorical)(jnp.asarray([0, 2]))


@pytest.mark.parametrize(
    ("x", "count", "message"),
    [
        ([-1, 0], None, "from 0 to 0, received -1"),
        ([0, 3], 3, "from 0 to 2, received 3"),
        (jnp.asarray([0, 3]), 3, "from 0 to 2, received 3"),
        ([0.5], None, "integer class numbers"),
        ([np.nan], 2, "integer class numbers"),
        (["cat"], None, "Convert names of classes"),
        (None, None, "received None"),
        ([[0], [1, 2]], None, "an array of class numbers"),
        ([], None, "received an empty array"),
        ([0], 0, "num_classes: expected a positive integer"),
        ([0], 2.5, "num_classes: expected a positive integer"),
        ([0], True, "num_classes: expected a positive integer"),
    ],
    ids=str,
)
def test_invalid_class_numbers_are_reported(x, count, message):
    with pytest.raises(ValueError, match=f"to_categorical: .*{message}|{message}"):
        fk.utils.to_categorical(x, count)


@pytest.mark.exhaustive
@pytest.mark.parametrize("order", [1, 2, 3, np.inf])
@pytest.mark.parametrize("as_array", [np.asarray, jnp.asarray], ids=["numpy", "jax"])
def test_normalized_vectors_equal_keras(order, as_array):
    x = as_array(np.asarray([[3.0, 4.0, 0.0], [0.0, 0.0, 0.0], [-1.0, 2.0, 2.0]], "float32"))
    with keras_rules():  # Keras takes infinity for NumPy arrays only
        expected = keras.utils.normalize(np.asarray(x) if order == np.inf else x, order=order)
    ours = fk.utils.normalize(x, order=order)
    assert isinstance(ours, jax.Array) == isinstance(x, jax.Array)
    np.testing.assert_allclose(ours, expected, rtol=1e-6)


@pytest.mark.exhaustive
def test_vectors_are_normalized_along_the_axis():
    x = np.asarray([[3.0, 0.0], [4.0, 2.0]])
    np.testing.assert_allclose(fk.utils.normalize(x, axis=0), [[0.6, 0.0], [0.8, 1.0]])
    np.testing.assert_allclose(fk.utils.normalize(x.T), fk.utils.normalize(x, axis=0).T)
    np.testing.assert_allclose(fk.utils.normalize([3, 4]), [0.6, 0.8])


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("x", "options", "message"),
    [
        ([[1.0]], {"axis": 2}, r".*axis of an array of shape \(1, 1\), received 2"),
        ([[1.0]], {"axis": None}, "axis: expected an integer"),
        ([[1.0]], {"order": 0}, "order: expected a number above 0"),
        ([[1.0]], {"order": "l2"}, "order: expected a number above 0"),
        (["a"], {}, "expected an array of numbers"),
        ([[1], [1, 2]], {}, "expected an array of numbers"),
        (1.0, {}, r".*axis of an array of shape \(\)"),
    ],
    ids=str,
)
def test_invalid_arguments_of_normalize_are_reported(x, options, message):
    with pytest.raises(ValueError, match=f"normalize: {message}"):
        fk.utils.normalize(x, **options)
