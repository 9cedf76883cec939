"""Attention of a single query over many places, computed elementwise on CPUs, equals the means in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fkeras.nn.attention import attend
from fkeras.nn.cpu.queries import QueryScores, has_many_places

RNG = np.random.default_rng(0)
#: rows, places, groups, heads and features
SIZES = {
    "one head a group": (1, 512, 8, 8, 64),
    "two rows": (2, 1024, 16, 32, 32),
    "few features": (1, 1024, 48, 144, 16),
}


def _arrays(sizes):
    rows, places, groups, heads, width = sizes
    shapes = ((rows, 1, heads, width), *[(rows, places, groups, width)] * 2)
    mask = np.arange(places) < np.array([[places - 5], [3]])[:rows]
    return *(RNG.normal(size=s).astype("float32") for s in shapes), mask[:, None, None]


def _exact(query, key, value, mask):
    repeats = query.shape[2] // key.shape[2]
    query, key, value = (a.astype("float64") for a in (query, key, value))
    key, value = (np.repeat(a, repeats, axis=2) for a in (key, value))
    weights = np.exp(np.where(mask, np.einsum("bqhd,bthd->bhqt", query, key) * 0.2, -np.inf))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("bhqt,bthd->bqhd", weights, value)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", SIZES)
def test_values_equal_those_in_float64(name):
    *arrays, mask = _arrays(SIZES[name])
    assert has_many_places(arrays[1], arrays[0].shape[2] // arrays[1].shape[2])
    y = jax.jit(lambda *a: attend(*a, scale=0.2))(*arrays, mask)
    np.testing.assert_allclose(y, _exact(*arrays, mask), rtol=2e-5, atol=2e-6)


def test_program_has_no_copy_of_keys_and_values():
    query, key, value, mask = _arrays((1, 512, 8, 8, 64))
    compiled = jax.jit(lambda *a: attend(*a, scale=0.2)).lower(query, key, value, mask).compile()
    # the products of the scores take a quarter of the keys
    assert compiled.memory_analysis().temp_size_in_bytes < 0.5 * key.nbytes


@pytest.mark.exhaustive
def test_gradients_and_vmap_equal_those_of_einsum():
    *arrays, mask = _arrays((2, 1024, 16, 32, 32))

    def score(attention):
        return lambda *a: jnp.sum(jnp.sin(attention(*a)))

    def by_einsum(query, key, value):
        query = query.reshape(2, 1, 16, 2, 32)
        logits = jnp.einsum("bqgzd,btgd->bgzqt", query, key) * 0.2
        weights = jax.nn.softmax(jnp.where(mask[:, :, None], logits, -jnp.inf))
        return jnp.einsum("bgzqt,btgd->bqgzd", weights, value).reshape(2, 1, 32, 32)

    ours = jax.grad(score(lambda *a: attend(*a, mask, scale=0.2)), (0, 1, 2))(*arrays)
    for a, b in zip(ours, jax.grad(score(by_einsum), (0, 1, 2))(*arrays), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    stacked = [np.stack([a, 2 * a]) for a in arrays]
    mapped = jax.vmap(lambda *a: attend(*a, mask, scale=0.2))(*stacked)
    for number in range(2):
        expected = _exact(*(a[number] for a in stacked), mask)
        np.testing.assert_allclose(mapped[number], expected, rtol=1e-4, atol=1e-5)
    # values only, or the query only
    for axes in ((0, None, None), (None, None, 0)):
        given = [a if axis is None else s for a, s, axis in zip(arrays, stacked, axes, strict=True)]
        mapped = jax.vmap(lambda *a: attend(*a, mask, scale=0.2), axes)(*given)
        chosen = [a if axis is None else a[1] for a, axis in zip(given, axes, strict=True)]
        np.testing.assert_allclose(mapped[1], _exact(*chosen, mask), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((1, 500, 8, 64), "float32"),  # places
        ((1, 512, 8, 40), "float32"),  # features
        ((1, 64, 8, 64), "float32"),  # few places
        ((1, 512, 8, 64), "bfloat16"),
    ],
)
def test_other_keys_are_multiplied_by_einsum(shape, dtype):
    assert not has_many_places(jax.ShapeDtypeStruct(shape, dtype), 1)


def test_groups_of_many_heads_are_multiplied_by_einsum():
    keys = jax.ShapeDtypeStruct((1, 512, 8, 64), "float32")
    assert has_many_places(keys, 1)
    assert not has_many_places(keys, 2)


def test_several_queries_are_multiplied_by_einsum():
    keys = jax.ShapeDtypeStruct((1, 512, 8, 64), "float32")
    form = QueryScores("abcd,aBcd->acbB")
    assert form.suits(jax.ShapeDtypeStruct((1, 1, 8, 64), "float32"), keys)
    assert not form.suits(jax.ShapeDtypeStruct((1, 2, 8, 64), "float32"), keys)
