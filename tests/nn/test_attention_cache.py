"""The cache of attention: slots of positions, and the tokens that are written there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fkeras.nn import attention_cache


def cache_of(rows, size):
    keys = np.arange(rows * size * 2, dtype="float32").reshape(rows, size, 2)
    positions = np.arange(rows * size, dtype="int32").reshape(rows, size)
    return {"keys": keys, "positions": positions}


write = jax.jit(attention_cache.write, static_argnums=2)


@pytest.mark.parametrize("ring", [False, True])
@pytest.mark.parametrize("position", [-1, 0, 2, 3, 4])
def test_the_token_of_one_row_is_written_like_those_of_several_rows(position, ring):
    cache = cache_of(1, 3)
    entries = {
        "keys": np.full((1, 1, 2), -1, "float32"),
        "positions": np.array([[position]], "int32"),
    }
    new = write(cache, entries, ring)
    several = write(
        cache_of(2, 3), {name: np.repeat(entry, 2, 0) for name, entry in entries.items()}, ring
    )
    expected = {name: entry.copy() for name, entry in cache.items()}
    if position >= 0 and (ring or position < 3):
        expected["keys"][0, position % 3] = -1
        expected["positions"][0, position % 3] = position
    for name, entry in expected.items():
        np.testing.assert_array_equal(new[name], entry)
        np.testing.assert_array_equal(several[name][:1], entry)


@pytest.mark.parametrize("ring", [False, True])
def test_as_many_tokens_as_slots_are_written_like_fewer_tokens(ring):
    cache = cache_of(3, 4)
    positions = np.array([[0, 1, 2, -1], [5, -1, 3, 4], [-1, -1, -1, -1]], "int32")
    entries = {
        "keys": -np.arange(24, dtype="float32").reshape(3, 4, 2),
        "positions": positions,
    }
    halves = [{n: e[:, part] for n, e in entries.items()} for part in (slice(3), slice(3, 4))]
    expected = write(write(cache, halves[0], ring), halves[1], ring)
    for name, entry in write(cache, entries, ring).items():
        np.testing.assert_array_equal(entry, expected[name])


def test_one_program_serves_any_number_of_rows():
    (rows,) = jax.export.symbolic_shape("rows")
    cache = jax.ShapeDtypeStruct((rows, 3), "float32")
    positions = jax.ShapeDtypeStruct((rows, 1), "int32")

    def write(keys, positions):
        cache = {"keys": keys, "positions": jnp.full(keys.shape, -1)}
        entries = {"keys": jnp.ones(positions.shape), "positions": positions}
        return attention_cache.write(cache, entries, False)["keys"]

    program = jax.export.export(jax.jit(write))(cache, positions)
    written = program.call(np.zeros((1, 3), "float32"), np.array([[2]], "int32"))
    np.testing.assert_array_equal(written, [[0, 0, 1]])
