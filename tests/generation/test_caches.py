"""States of generation: rows, capacity, and tokens that are taken back."""

import jax
import jax.numpy as jnp
import pytest

import fkeras as fk
from fkeras.generation import requests
from fkeras.generation.caches import (
    capacity_of,
    has_lengths_only,
    merged,
    take_back,
    take_rows,
)
from tests.support import language_models


@pytest.fixture(scope="module")
def model():
    return language_models.cached(depth=1)


@pytest.fixture(scope="module")
def state(model):
    """Rows of three and of two tokens."""
    ids, mask = jnp.array([[1, 2, 3], [4, 5, 0]]), jnp.array([[1, 1, 1], [1, 1, 0]], bool)
    state = model.init_cache(2, 6)
    return state | model.apply(ids, state=state, mask=[mask, None]).updates


@pytest.mark.exhaustive
def test_taken_back_tokens_leave_the_state(model, state):
    shorter = take_back(state, jnp.array([2, 1]))
    assert shorter["positions"]["length"].tolist() == [1, 1]
    assert shorter["block_0"]["attention"]["positions"].tolist() == [[0, *[-1] * 5]] * 2
    # the next tokens take the free places
    next_ids = jnp.array([[2], [5]])
    again = model.apply(next_ids, state=shorter).value
    ids = jnp.array([[1, 2], [4, 5]])
    assert jnp.allclose(again[:, 0], model(ids)[:, 1], atol=1e-5)


@pytest.mark.exhaustive
def test_rows_are_found_by_their_size(model, state):
    reader, _ = requests.reader_of(model, None, 2, (None, None), None, None)
    axes = reader.row_axes(state)
    assert set(jax.tree.leaves(axes)) == {0}
    twice = take_rows(state, axes, jnp.array([1, 1, 0]))
    assert twice["positions"]["length"].tolist() == [2, 2, 3]
    assert has_lengths_only(state, axes)
    own = {"gru": {"carry": jnp.zeros((2, 3))}}
    assert not has_lengths_only(own, {"gru": {"carry": 0}})
    assert has_lengths_only(own, {"gru": {"carry": -1}})


@pytest.mark.exhaustive
def test_capacity_counts_caches_and_no_rings(model):
    assert capacity_of(model, model.init_cache(2, 6)) == 6
    window = fk.masks.Causal() & fk.masks.Window(3)
    ring = language_models.cached(depth=1, mask=window)
    assert capacity_of(ring, ring.init_cache(2, 40)) is None
    assert capacity_of(ring, {}) is None


def test_merged_states_keep_the_own_entries():
    assert merged({"a": {"x": 1, "y": 2}, "b": 3}, {"a": {"x": 5}}) == {
        "a": {"x": 5, "y": 2},
        "b": 3,
    }
