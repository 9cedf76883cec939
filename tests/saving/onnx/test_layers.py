"""The layers of the layer table as ONNX files."""

import jax
import pytest

import fkeras as fk
from tests.cases import all_cases
from tests.support.onnx_runtime import check

KEY = jax.random.key(0)
# the beginnings of the rows without ONNX form: opset or error, and why
ABSENT = {
    "Equalization": "counts pixels in windows",
    "ContrastLimitedAdaptive": "counts pixels in windows",
    "Float8Dense": "ONNX Runtime has no products of float8 on CPUs",
}
CASES = [case for case in all_cases() if not case.training]
PRESENT = [case for case in CASES if not case.id.startswith(tuple(ABSENT))]
FIRST = {type(case.layer): case.id for case in reversed(PRESENT) if not case.exhaustive}


def model_of(case):
    """A model of one call of the row, its state, and its inputs; the mask is the last input."""
    rows = case.arrays()[0]
    leading = jax.tree.leaves(rows)[0].shape[0] if "stateful=True" in repr(case.layer) else None
    arrays = case.arrays(seed=3, batch=leading or 4)
    mask, options = case.mask_array(), dict(case.options)

    def symbol(array):
        return fk.Input(batch_shape=(leading, *array.shape[1:]), dtype=array.dtype)

    symbols = jax.tree.map(symbol, arrays)
    inputs, values = (
        jax.tree.leaves(symbols, is_leaf=fk.engine.is_symbolic),
        jax.tree.leaves(arrays),
    )
    if mask is not None:
        options["mask"] = symbol(mask.astype(bool))
        inputs.append(options["mask"])
        rows = values[0].shape[0]
        values.append(mask.repeat(2, axis=0)[:rows])
    model = fk.Model(inputs, case.layer(*symbols, **options)).build(KEY)
    return model, model.init_state(), values, leading


def _marks(case):
    return [pytest.mark.exhaustive] if case.id != FIRST.get(type(case.layer)) else []


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=_marks(case), id=case.id) for case in PRESENT]
)
def test_onnx_runtime_computes_the_layer(case, tmp_path):
    model, state, values, fixed = model_of(case)
    # hashes and int4 compute with bits
    opset = 18 if case.id.startswith(("Hash", "Quantized")) else 17
    check(tmp_path / "m.onnx", model, state, values, () if fixed else (1, 3), opset=opset)


def test_at_least_95_percent_of_the_rows_have_a_form():
    assert len(PRESENT) >= 0.95 * len(CASES)


@pytest.mark.parametrize(
    "case",
    [c for c in CASES if c.id.startswith(("Equalization", "ContrastL")) and not c.exhaustive][:2],
    ids=lambda case: case.id,
)
def test_rows_without_form_are_errors_that_name_the_layer(case, tmp_path):
    model, state, _, _ = model_of(case)
    name = model.graph.output_names[0]
    with pytest.raises(fk.FKerasError, match=f"export, '.*{name}': JAX's operation 'scatter-add'"):
        fk.export(model, state, tmp_path / "m.onnx")
    assert not (tmp_path / "m.onnx").exists()
