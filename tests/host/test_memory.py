"""Arrays side by side: room, places, and stacks without a copy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fkeras.host import memory

on_cpu = pytest.mark.skipif(jax.default_backend() != "cpu", reason="memory of a CPU")


@on_cpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_places_are_one_array(dtype):
    arrays = [np.full((4, 32), n).astype(dtype) for n in range(3)]
    places = memory.room_for(3, (4, 32), dtype)
    placed = [memory.placed_in(p, a) for p, a in zip(places, arrays, strict=True)]
    whole = memory.as_one(placed)
    assert whole.dtype == dtype
    assert whole.unsafe_buffer_pointer() == placed[0].unsafe_buffer_pointer()
    np.testing.assert_array_equal(np.asarray(whole, "float32"), np.stack(arrays).astype("float32"))


@on_cpu
def test_other_arrays_are_copied():
    arrays = [jnp.full(3, float(n)) for n in range(2)]
    assert memory.as_one(arrays) is None
    assert memory.as_one([jnp.ones(16), jnp.ones((4, 4))]) is None
    assert memory.stacked(arrays).tolist() == [[0.0] * 3, [1.0] * 3]
    assert [part.tolist() for part in memory.apart(memory.stacked(arrays))] == [
        [0.0] * 3,
        [1.0] * 3,
    ]


@pytest.mark.parametrize("shape", [(5,), (0, 16), (3, 7)])
def test_arrays_that_begin_elsewhere_have_no_room(shape):
    assert memory.room_for(2, shape, "float32") is None
