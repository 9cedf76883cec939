"""Dictionaries of values by calls, which names of layers find too."""

import copy
import pickle

import jax
import pytest

from fkeras.engine.values import structure
from fkeras.engine.values.values_by_call import ValuesByCall, plain_dicts

VALUES = ValuesByCall(
    {"b_ib-0": 1, "a_ib-1": 2, "a_ib-0": 3, "n_ib-0/c_ib-10:2": 4, "d_ib-0_ib-0": 5}
)


def test_the_keys_are_those_of_a_dictionary():
    plain = dict(VALUES)
    assert type(plain) is dict and VALUES == plain and list(VALUES) == list(plain)
    assert repr(VALUES) == repr(plain) and len(VALUES) == 5 and {**VALUES} == plain


@pytest.mark.parametrize(("name", "value"), [("b", 1), ("a_ib-1", 2), ("n/c:2", 4), ("d_ib-0", 5)])
def test_names_of_one_value(name, value):
    assert VALUES[name] == VALUES.get(name) == value and name in VALUES


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a", "'a' has the values of 2 calls. Write one of the keys: 'a_ib-1', 'a_ib-0'"),
        ("n/x:2", "no value 'n/x:2'. Did you mean 'n/c:2'"),
        ("d", "no value 'd'"),
        (0, "no value 0. Existing keys are: 'b_ib-0', 'a_ib-1'"),
        (None, "no value None. Existing"),
    ],
)
def test_other_names_name_the_keys(name, message):
    assert name not in VALUES and VALUES.get(name, 9) == 9
    with pytest.raises(KeyError) as caught:
        _ = VALUES[name]
    assert message in str(caught.value)


def test_keys_of_users():
    values = ValuesByCall({**VALUES, 3: 6})
    assert values["b"] == 1 and values[3] == 6 and "x" not in values
    with pytest.raises(KeyError, match="no value 'x'.*, 3"):
        _ = values["x"]


def test_the_leaves_are_those_of_a_dictionary():
    paths = jax.tree_util.tree_flatten_with_path
    assert paths(VALUES)[0] == paths(dict(VALUES))[0]
    for other in (
        jax.tree.map(lambda x: x, VALUES),
        copy.deepcopy(VALUES),
        pickle.loads(pickle.dumps(VALUES)),
        structure.thaw(structure.freeze(VALUES, lambda x: x), lambda x: x),
    ):
        assert type(other) is ValuesByCall and other == VALUES


def test_plain_dictionaries_at_all_depths():
    plain = plain_dicts((ValuesByCall({"a_ib-0": [ValuesByCall({"b_ib-0": 1})]}), {"c": 2}))
    assert plain == ({"a_ib-0": [{"b_ib-0": 1}]}, {"c": 2})
    assert type(plain[0]) is dict and type(plain[0]["a_ib-0"][0]) is dict
