"""The operations of `fk.ops` as ONNX files: equal to JAX, or an error; never other numbers."""

import jax
import numpy as np
import pytest

import fkeras as fk
from tests.ops.table import ROWS
from tests.support.onnx_runtime import run, session
from tests.support.rows_of_operations import arrays_of, call

SINGLE = [
    row
    for row in ROWS
    # ONNX Runtime returns no bfloat16 to NumPy, and has no complex numbers
    if row.symbolic and arrays_of(row) and "bfloat16" not in str(row)
    if not any(array.dtype == np.complex64 for array in arrays_of(row))
]
# rows that share little of their rules; the others run in CI alone
QUICK = ("add", "take", "clip", "einsum", "cumsum", "argmax", "where", "pad", "floor_divide", "gcd")


def _marks(row):
    return () if str(row) in QUICK else pytest.mark.exhaustive


@pytest.mark.exhaustive
@pytest.mark.parametrize("row", [pytest.param(r, id=str(r), marks=_marks(r)) for r in SINGLE])
def test_operations_are_equal_or_refused(row, tmp_path):
    arrays = [jax.numpy.asarray(array) for array in arrays_of(row)]
    symbols = [fk.Input(batch_shape=a.shape, dtype=str(a.dtype)) for a in arrays]
    model = fk.Model(symbols, jax.tree.leaves(call(row, symbols))).build(jax.random.key(0))
    path = tmp_path / "m.onnx"
    try:
        fk.export(model, None, path, opset=18)
    except fk.FKerasError:
        assert str(row) not in QUICK
        pytest.skip("has no ONNX form")
    outputs = run(session(path), [np.asarray(array) for array in arrays])
    values = [v for v in jax.tree.leaves(call(row, arrays)) if hasattr(v, "dtype")]
    for output, value in zip(outputs, values, strict=True):
        assert output.shape == value.shape
        tolerance = 1e-3 if value.dtype == np.float16 else 1e-4
        value = np.asarray(value, "float64")
        np.testing.assert_allclose(output.astype("float64"), value, rtol=tolerance, atol=tolerance)
