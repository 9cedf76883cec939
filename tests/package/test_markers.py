"""The markers of tests/conftest.py that choose the cases of products for the default suite."""

import types

import pytest

from fkeras import layers


@pytest.fixture
def run_by_default(request):
    """The cases that run by default among `(marker, params, exhaustive)` of one test."""
    plugins = request.config.pluginmanager.get_plugins()
    (others,) = (p._others_of_products for p in plugins if hasattr(p, "_others_of_products"))

    def choose(mark, cases, exhaustive=(), test="tests/test_a.py::test_b"):
        def item(case):
            marks = {mark.name: mark}
            if case in exhaustive:
                marks["exhaustive"] = pytest.mark.exhaustive.mark
            params = {"case": types.SimpleNamespace(layer=case, mask=None, training=False)}
            return types.SimpleNamespace(
                nodeid=f"{test}[{case}]",
                case=case,
                get_closest_marker=marks.get,
                callspec=types.SimpleNamespace(params=params),
            )

        items = [item(case) for case in cases]
        left_out = {id(one) for one in others(items)}
        return [one.case for one in items if id(one) not in left_out and one.case not in exhaustive]

    return choose


@pytest.mark.parametrize(("count", "step", "expected"), [(8, 4, {2}), (9, 4, {2, 3}), (3, 10, {1})])
def test_one_case_in_n_runs(run_by_default, count, step, expected):
    names = [f"tests/test_a.py::test_{n}" for n in range(20)]
    chosen = [
        run_by_default(pytest.mark.one_in(step).mark, range(count), test=name) for name in names
    ]
    assert {len(cases) for cases in chosen} == expected
    assert len({tuple(cases) for cases in chosen}) > 1, "tests differ in their cases"
    assert all(b - a == step for cases in chosen for a, b in zip(cases, cases[1:], strict=False))


def test_a_case_that_is_named_alone_runs(run_by_default):
    assert run_by_default(pytest.mark.one_in(9).mark, [5]) == [5]


def test_exhaustive_cases_are_not_chosen(run_by_default):
    chosen = run_by_default(pytest.mark.one_in(4).mark, range(8), exhaustive=range(1, 8))
    assert chosen == [0]


def test_each_class_or_family_has_a_row(run_by_default):
    rows = [layers.Dense(1), layers.Dense(2), layers.Conv1D(1, 1), layers.Conv2D(1, 1)]
    by_class = run_by_default(pytest.mark.one_a_class.mark, rows)
    assert [type(row) for row in by_class] == [layers.Dense, layers.Conv1D, layers.Conv2D]
    family = pytest.mark.one_a_class(family=True, first=True).mark
    assert run_by_default(family, rows) == [rows[0], rows[2]]
    one_in_two = pytest.mark.one_a_class(first=True, each=2).mark
    rows = [layers.Dense(1), layers.Dense(2), layers.Dense(3), rows[2]]
    assert run_by_default(one_in_two, rows) == [rows[0], rows[2], rows[3]]
