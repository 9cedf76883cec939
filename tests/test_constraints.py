"""Constraints against Keras."""

import jax
import numpy as np
import pytest

import fkeras as fk
from tests.support.keras_oracle import keras
from tests.support.value_data import X, ours_and_theirs

CONSTRAINTS = [
    ("MaxNorm", {"max_value": 1.0}),
    ("NonNeg", {}),
    ("UnitNorm", {"axis": 1}),
    ("MinMaxNorm", {"min_value": 0.5, "max_value": 1.5, "rate": 0.7}),
]


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("name", "options"), CONSTRAINTS, ids=[n for n, _ in CONSTRAINTS])
def test_constraints_equal_keras(name, options):
    ours = getattr(fk.constraints, name)(**options)
    pair = ours_and_theirs(ours, getattr(keras.constraints, name)(**options))
    np.testing.assert_allclose(*pair, rtol=1e-5, atol=1e-6)
    assert fk.constraints.deserialize(fk.constraints.serialize(ours)) == ours
    assert np.isfinite(np.asarray(jax.jit(ours)(0 * X))).all()


def test_bounds_in_the_wrong_order_are_rejected():
    with pytest.raises(ValueError, match=r"min_value of at most max_value, received 5.0 and 1.0"):
        fk.constraints.MinMaxNorm(5.0, 1.0)
