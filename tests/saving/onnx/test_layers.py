"""The layers of the layer table as ONNX files."""

import pytest

import fkeras as fk
from tests.cases import all_cases
from tests.support.models_of_cases import model_of
from tests.support.onnx_runtime import check

# the beginnings of the rows without ONNX form: opset or error, and why
ABSENT = {
    "Equalization": "counts pixels in windows",
    "ContrastLimitedAdaptive": "counts pixels in windows",
    "Float8Dense": "ONNX Runtime has no products of float8 on CPUs",
}
CASES = [case for case in all_cases() if not case.training]
PRESENT = [case for case in CASES if not case.id.startswith(tuple(ABSENT))]
FIRST = {type(case.layer): case.id for case in reversed(PRESENT) if not case.exhaustive}


def _marks(case):
    return [pytest.mark.exhaustive] if case.id != FIRST.get(type(case.layer)) else []


@pytest.mark.one_in(12)
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


@pytest.mark.one_in(2)
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
