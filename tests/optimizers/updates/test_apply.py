"""The count of steps, and gradients that are accumulated."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fkeras import optimizers


@pytest.mark.exhaustive
def test_the_step_count_adds_no_operation_to_a_loop():
    """XLA joins it with the loop's counter: a step of SGD is one fusion a weight and a sum."""
    tx = optimizers.SGD().transformation()
    weights = {"a": jnp.ones(3), "b": jnp.ones((2, 2))}

    def step(carry, _):
        deltas, state = tx.update(carry[0], carry[1], carry[0])
        return (optax.apply_updates(carry[0], deltas), state), None

    run = jax.jit(lambda carry: jax.lax.scan(step, carry, None, length=32)[0])
    (_, state), text = (f((weights, tx.init(weights))) for f in (run, lambda c: run.lower(c)))
    assert int(state.count) == 32
    carried = next(line for line in text.compile().as_text().splitlines() if " while(" in line)
    assert carried.split(" while(")[0].count("s32[]") == 1


def test_the_step_count_saturates():
    state = optimizers.Adam(0.1).transformation().init(jnp.ones(2))
    state = state._replace(count=jnp.int32(2**31 - 1))
    for _ in range(2):
        delta, state = optimizers.Adam(0.1).transformation().update(jnp.ones(2), state)
        assert np.isfinite(delta).all()


def test_accumulated_updates_wait_and_then_take_the_mean():
    tx = optimizers.SGD(1.0, gradient_accumulation_steps=2).transformation()
    state, weights = tx.init(jnp.zeros(1)), jnp.zeros(1)
    first, state = tx.update(jnp.array([1.0]), state, weights)
    second, state = tx.update(jnp.array([2.0]), state, weights)
    np.testing.assert_allclose([first[0], second[0]], [0.0, -1.5])
    assert int(state.count) == 2
    assert float(state.slots["gradient_accumulator"][0]) == 0.0
