"""Learning rates in optimizer states: reading and replacing."""

import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fkeras as fk
from fkeras.optimizers.updates.rates import learning_rate, with_learning_rate

WEIGHTS = {"w": jnp.ones(2)}


INJECTED = optax.inject_hyperparams(optax.sgd)(learning_rate=0.5)


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    "optimizer",
    [
        fk.optimizers.Adam(0.5).transformation(),
        INJECTED,
        optax.chain(optax.clip(1.0), INJECTED),
        optax.chain(optax.clip(1.0), optax.chain(fk.optimizers.SGD(0.5).transformation())),
        optax.masked(INJECTED, {"w": True}),
        optax.multi_transform({"a": INJECTED, "b": optax.set_to_zero()}, {"w": "a"}),
    ],
)
def test_rates_are_read_and_replaced(optimizer):
    state = optimizer.init(WEIGHTS)
    assert float(learning_rate(state)) == 0.5
    new = with_learning_rate(state, 0.25)
    assert float(learning_rate(new)) == 0.25
    assert float(learning_rate(state)) == 0.5
    chex.assert_trees_all_equal_shapes_and_dtypes(new, state)
    assert jax.tree.structure(new) == jax.tree.structure(state)
    gradients = {"w": jnp.ones(2)}
    slow = optimizer.update(gradients, new, WEIGHTS)[0]["w"]
    np.testing.assert_allclose(slow * 2, optimizer.update(gradients, state, WEIGHTS)[0]["w"], 1e-5)
    traced = jax.jit(lambda s: with_learning_rate(s, learning_rate(s) * 3))(state)
    assert float(learning_rate(traced)) == 1.5


def test_a_new_rate_does_not_recompile():
    step = jax.jit(lambda state: learning_rate(state) * 2)
    state = fk.optimizers.SGD(0.5).transformation().init(WEIGHTS)
    step(state)
    step(with_learning_rate(state, 0.1))
    assert step._cache_size() == 1


def test_rates_of_a_population():
    optimizer = fk.optimizers.SGD(0.5).transformation()
    state = jax.vmap(optimizer.init)({"w": jnp.ones((3, 2))})
    assert learning_rate(state).shape == (3,)
    np.testing.assert_allclose(learning_rate(with_learning_rate(state, 0.1)), [0.1] * 3)
    new = with_learning_rate(state, np.asarray([1, 2, 3]))
    np.testing.assert_array_equal(learning_rate(new), [1, 2, 3])
    with pytest.raises(ValueError, match=r"array of shape \(3,\), received shape \(2,\)"):
        with_learning_rate(state, [1.0, 2.0])


def test_wrong_rates_are_reported():
    plain = optax.adam(0.1).init(WEIGHTS)
    with pytest.raises(ValueError, match=r"as a constant.*optax.inject_hyperparams\(optax.adam\)"):
        learning_rate(plain)
    schedule = fk.optimizers.SGD(lambda step: 0.1).transformation().init(WEIGHTS)
    with pytest.raises(ValueError, match="learning_rate: .* has a schedule"):
        learning_rate(schedule)
    injected = optax.inject_hyperparams(optax.sgd)(optax.constant_schedule(0.5)).init(WEIGHTS)
    assert float(learning_rate(injected)) == 0.5
    with pytest.raises(ValueError, match="with_learning_rate: .* has a schedule"):
        with_learning_rate(injected, 0.1)
    two = optax.chain(INJECTED, INJECTED).init(WEIGHTS)
    with pytest.raises(ValueError, match=r"has 2, at \[0\], \[1\]. Replace them"):
        with_learning_rate(two, 0.1)
    state = fk.optimizers.SGD(0.5).transformation().init(WEIGHTS)
    for value in (-1.0, math.nan, "fast"):
        with pytest.raises(ValueError, match="expected a number of 0 or more, received"):
            with_learning_rate(state, value)
