"""Arrays of one process in the functions for several: nothing is exchanged, nothing is copied."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from fkeras.host.processes.arrays import is_key, put
from fkeras.host.processes.gathering import gathered, is_spread, processes_of


def layout(*entries):
    return NamedSharding(jax.make_mesh((2,), ("data",), devices=jax.devices()[:2]), P(*entries))


pytestmark = pytest.mark.skipif(jax.device_count() < 2, reason="needs two devices")


@pytest.mark.parametrize("array", [np.arange(8.0), jnp.arange(8.0), 3, jax.random.key(1)])
def test_put_equals_device_put(array):
    target = layout("data") if np.ndim(array) else layout()
    expected, received = jax.device_put(array, target), put(array, target)
    assert received.dtype == expected.dtype
    assert received.sharding == target
    assert bool((received == expected).all())


@pytest.mark.exhaustive
def test_put_in_a_trace_and_on_one_device():
    moved = jax.jit(lambda x: put(x, layout("data")))(jnp.arange(4.0))
    assert moved.tolist() == [0, 1, 2, 3]
    last = SingleDeviceSharding(jax.devices()[1])
    assert put(moved, last).sharding == last


def test_put_returns_an_array_that_has_the_layout():
    array = jax.device_put(np.arange(4.0), layout("data"))
    assert put(array, layout("data")) is array


def test_is_key():
    key = jax.random.key(0)
    assert is_key(key)
    assert is_key(jax.random.split(key, 2))
    assert not is_key(jax.random.key_data(key))
    assert not is_key(1.0)


@pytest.mark.exhaustive
def test_arrays_of_one_process_are_not_gathered():
    tree = {"w": jax.device_put(np.arange(4.0), layout("data")), "key": jax.random.key(0), "n": 1}
    assert not is_spread(tree)
    assert processes_of(tree) is None
    same = gathered(tree)
    assert all(same[name] is tree[name] for name in tree)


def test_a_trace_is_not_spread():
    seen = []
    jax.jit(lambda x: seen.append(is_spread({"x": x})))(1.0)
    assert seen == [False]
