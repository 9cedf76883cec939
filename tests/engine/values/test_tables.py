"""Columns of tables without numbers: the message names the column, its dtype and the line to write."""

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers

pandas = pytest.importorskip("pandas")
TRAINER = fk.Trainer("adam", "mse")
RUN = TRAINER.init(fk.Sequential([fk.Input((1,)), layers.Dense(1)]), jax.random.key(0))
Y = np.ones((2, 1), "float32")


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("table", "parts"),
    [
        (pandas.DataFrame({"b": ["p", "q"]}), ("column 'b' of dtype", "layers.StringLookup()")),
        (
            pandas.DataFrame({"a": [1.0, 2.0], "b": ["p", "q"]}),
            ("column 'b' of dtype", "fk.utils.FeatureSpace"),
        ),
        (
            pandas.DataFrame({"a": pandas.Categorical(["p", "q"])}),
            ("column 'a' of dtype category", "`ids = x['a'].cat.codes`"),
        ),
        (
            pandas.Series(pandas.Categorical(["p", "q"])),
            ("the column of dtype category", "`ids = x.cat.codes`"),
        ),
        (
            pandas.DataFrame({"day": pandas.to_datetime(["2020-01-01", "2021-01-01"])}),
            ("column 'day' of dtype datetime64", ".dt.days`"),
        ),
    ],
)
def test_a_column_without_numbers_is_named(table, parts):
    with pytest.raises(TypeError) as caught:
        _ = TRAINER.fit(RUN, table, Y, verbose=0)
    assert all(part in str(caught.value) for part in parts)
    assert "Pad rows" not in str(caught.value)


@pytest.mark.exhaustive
def test_columns_of_numbers_are_taken():
    for column in ([1.0, 2.0], pandas.array([1, 2], dtype="Int64"), [True, False]):
        run, _ = TRAINER.fit(RUN, pandas.DataFrame({"a": column}), Y, verbose=0)
        assert int(run.step) == 1


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("column", "words"),
    [
        (
            pandas.array([1, None], dtype="Int64"),
            r"Int64 with 1 missing of 2 values, the first in row 1.*column.fillna\(0\)",
        ),
        (
            pandas.array([None, None], dtype="Float64"),
            "Float64 with 2 missing of 2 values, the first in row 0",
        ),
        (
            pandas.array([True, None], dtype="boolean"),
            r"boolean with 1 missing.*column.fillna\(False\)",
        ),
        (pandas.Categorical([1, None]), r"category with 1 missing.*`ids = column.cat.codes \+ 1`"),
        (
            np.array([1, None], object),
            r"object with 1 missing.*column.fillna\(0\).astype\('float32'\)",
        ),
        (np.array(["p", None], object), "layers.StringLookup"),
    ],
)
@pytest.mark.parametrize("others", [{}, {"b": [1.0, 2.0]}])
def test_missing_values_of_columns_are_counted(column, words, others):
    table = pandas.DataFrame({"a": column, **others})
    with pytest.raises((TypeError, ValueError), match=f"fit: x: .*column 'a' of dtype.*{words}"):
        _ = TRAINER.fit(RUN, table, Y, verbose=0)
    with pytest.raises((TypeError, ValueError), match=f"Dense.*column 'a' of dtype.*{words}"):
        RUN.model.layers["dense"](table)


@pytest.mark.exhaustive
def test_missing_values_of_a_series_and_of_targets():
    column = pandas.Series([1, None], dtype="Int64", name="rooms")
    with pytest.raises(ValueError, match="y: .*column 'rooms' of dtype Int64 with 1 missing"):
        _ = TRAINER.fit(RUN, Y, column, verbose=0)
    with pytest.raises(ValueError, match="y_true: .*Int64 with 1 missing"):
        fk.losses.MeanSquaredError()(column, Y[:, 0])
    # NaN in NumPy's floats is a number, which a row of weight 0 may hold
    floats = pandas.DataFrame({"a": [1.0, np.nan]})
    with pytest.raises(ValueError, match="x, row 1: expected finite numbers"):
        _ = TRAINER.fit(RUN, floats, Y, verbose=0)
    weights = np.array([1.0, 0.0])
    run, _ = TRAINER.fit(RUN, floats, Y, sample_weight=weights, verbose=0)
    assert int(run.step) == 1


def test_the_lines_of_the_messages_work():
    table = pandas.DataFrame({"a": pandas.array([1, None], dtype="Int64")})
    run, _ = TRAINER.fit(RUN, table.fillna(0), Y, verbose=0)
    column = pandas.Series(pandas.Categorical([4, None]))
    assert (column.cat.codes + 1).tolist() == [1, 0]
    column = pandas.Series([1, None], dtype=object)
    run, _ = TRAINER.fit(RUN, column.fillna(0).astype("float32").to_frame(), Y, verbose=0)
    assert int(run.step) == 1
