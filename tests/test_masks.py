"""Attention masks as values."""

import math
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import masks

CAUSAL, WINDOW = masks.Causal(), masks.Window(3)
VALUES = [
    CAUSAL,
    WINDOW,
    masks.Window(2, both_sides=True),
    masks.Prefix(2),
    masks.Chunk(2),
    CAUSAL & WINDOW,
    CAUSAL | masks.Prefix(2),
    ~CAUSAL & (WINDOW | masks.Prefix(1)),
]
STEPS = np.arange(6)


@pytest.mark.one_in(7)
@pytest.mark.parametrize("mask", VALUES, ids=repr)
def test_masks_are_values(mask):
    assert pickle.loads(pickle.dumps(mask)) == mask
    assert hash(pickle.loads(pickle.dumps(mask))) == hash(mask)
    assert {mask: 1}[mask] == 1
    assert jax.tree.leaves(mask) == []
    assert jax.tree.map(lambda x: x, mask) == mask
    layer = fk.layers.DotProductAttention(mask)
    config = fk.layers.serialize(layer)
    assert config["config"]["mask"]["module"] == "fkeras.masks"
    assert fk.layers.deserialize(config) == layer
    assert eval(repr(mask), vars(masks).copy()) == mask


@pytest.mark.exhaustive
def test_masks_of_positions_equal_masks_of_moved_positions():
    for mask in (CAUSAL & WINDOW, ~CAUSAL | masks.Window(2, both_sides=True)):
        expected = mask.allows(STEPS, STEPS)
        rows = np.stack([STEPS, STEPS + 50])
        both = mask.allows(rows, rows)
        np.testing.assert_array_equal(both, np.stack([expected] * 2))
        # the order of keys has no meaning
        order = np.random.default_rng(0).permutation(6)
        np.testing.assert_array_equal(mask.allows(STEPS, STEPS[order]), expected[:, order])


def test_reach():
    inf = math.inf
    assert CAUSAL.reach == (inf, 0)
    assert WINDOW.reach == (2, inf)
    assert (CAUSAL & WINDOW).reach == (2, 0)
    assert (CAUSAL & (WINDOW | masks.Prefix(1))).reach == (inf, 0)
    assert ((CAUSAL & WINDOW) | (CAUSAL & masks.Window(9))).reach == (8, 0)
    assert masks.Window(4, both_sides=True).reach == (3, 3)
    assert (CAUSAL & masks.Chunk(4)).reach == (3, 0)
    assert (~CAUSAL).reach == (inf, inf)


def test_a_chunk_of_other_keys():
    allowed = masks.Chunk(4).allows(np.array([5]), np.arange(10))
    assert np.flatnonzero(allowed[0]).tolist() == [4, 5, 6, 7]


@pytest.mark.exhaustive
def test_arrays_are_leaves():
    ids = jnp.array([[1, 1, 2]])
    mask = CAUSAL & masks.Segments(ids)
    (leaf,) = jax.tree.leaves(mask)
    assert leaf is ids
    steps = jnp.arange(3)
    allowed = jax.jit(lambda m: m.allows(steps, steps))(mask)
    np.testing.assert_array_equal(allowed, mask.allows(steps, steps))
    assert allowed[0].astype(int).tolist() == [[1, 0, 0], [1, 1, 0], [0, 0, 1]]
    prefix = masks.Prefix(jnp.array([1, 2])).allows(steps, steps)
    assert prefix.astype(int).tolist() == [[[1, 0, 0]] * 3, [[1, 1, 0]] * 3]
    mapped = jax.vmap(lambda n: masks.Prefix(n[None]).allows(steps, steps))(jnp.array([1, 2]))
    np.testing.assert_array_equal(mapped[:, 0], prefix)
    with pytest.raises(TypeError, match="unhashable"):
        hash(mask)


def test_a_mask_of_a_user():
    class Even(masks.Mask):
        def allows(self, query, key):
            return (key % 2 == 0)[None] & (query >= 0)[:, None]

    mask = Even() & CAUSAL
    assert mask.allows(STEPS, STEPS)[5].tolist() == [True, False, True, False, True, False]
    layer = fk.layers.DotProductAttention(Even())
    config = fk.layers.serialize(layer)
    assert fk.layers.deserialize(config, {"Even": Even}) == layer
    with pytest.raises(NotImplementedError, match="def allows"):
        masks.Mask().allows(STEPS, STEPS)


ERRORS = [
    (lambda: masks.Window(0), ValueError, "Window: size: expected a positive integer, received 0"),
    (lambda: masks.Window(2.5), ValueError, "received 2.5"),
    (lambda: masks.Window(2, both_sides="yes"), ValueError, "True or False"),
    (lambda: masks.Chunk(0), ValueError, "Chunk: size: expected a positive integer, received 0"),
    (lambda: masks.Prefix(-1), ValueError, "Prefix: size: expected a positive integer"),
    (lambda: masks.Prefix(np.ones(2)), ValueError, "Prefix: size"),
    (lambda: masks.Segments([[1, 2]]), ValueError, r"integers of shape \(b, t\)"),
    (lambda: masks.Segments(np.ones((1, 2))), ValueError, r"integers of shape \(b, t\)"),
    (lambda: masks.Segments(np.ones(3, int)), ValueError, r"integers of shape \(b, t\)"),
    (lambda: CAUSAL and WINDOW, TypeError, "`and`, `or` and `not` do not combine masks"),
    (lambda: CAUSAL & True, TypeError, "unsupported operand"),
    (lambda: masks.And(()), ValueError, "at least one mask"),
    (lambda: masks.Or((1,)), ValueError, "expected a tuple of masks"),
    (lambda: masks.Not("causal"), ValueError, "expected a tuple of masks"),
    (lambda: masks.Windw(3), AttributeError, "Window"),
]


@pytest.mark.parametrize(("make", "kind", "message"), ERRORS)
def test_wrong_masks(make, kind, message):
    with pytest.raises(kind, match=message):
        make()
