"""Regularizers against Keras."""

import jax
import numpy as np
import pytest

import fkeras as fk
from tests.support.keras_oracle import keras
from tests.support.value_data import X, ours_and_theirs

REGULARIZERS = [
    ("L1", {"l1": 0.3}),
    ("L2", {"l2": 0.3}),
    ("L1L2", {"l1": 0.1, "l2": 0.2}),
    ("OrthogonalRegularizer", {"factor": 0.5}),
]


@pytest.mark.parametrize(("name", "options"), REGULARIZERS, ids=lambda v: str(v))
def test_regularizers_equal_keras(name, options):
    ours = getattr(fk.regularizers, name)(**options)
    np.testing.assert_allclose(
        *ours_and_theirs(ours, getattr(keras.regularizers, name)(**options)), rtol=1e-5
    )
    assert fk.regularizers.deserialize(fk.regularizers.serialize(ours)) == ours
    with pytest.raises(ValueError, match=r"number of 0 or more"):
        getattr(fk.regularizers, name)(**{k: -1.0 for k in options})


@pytest.mark.exhaustive
def test_orthogonal_columns_are_the_rows_of_the_transpose():
    """Keras's mode "columns" fails on matrices that are not square; see the docstring."""
    rows = fk.regularizers.OrthogonalRegularizer(0.5, "rows")
    columns = fk.regularizers.OrthogonalRegularizer(0.5, "columns")
    both = jax.jit(lambda x, eye: (columns(x), rows(x.T), columns(eye)))
    *found, nothing = both(X, np.eye(4, dtype="float32"))
    np.testing.assert_allclose(*found, rtol=1e-6)
    assert float(nothing) == 0.0
