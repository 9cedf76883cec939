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


def test_columns_of_numbers_are_taken():
    for column in ([1.0, 2.0], pandas.array([1, 2], dtype="Int64"), [True, False]):
        run, _ = TRAINER.fit(RUN, pandas.DataFrame({"a": column}), Y, verbose=0)
        assert int(run.step) == 1
