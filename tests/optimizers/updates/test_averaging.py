"""Averages of weights."""

import jax.numpy as jnp
import numpy as np
import optax

from fkeras import optimizers


def test_the_average_of_the_weights():
    weights = {"w": jnp.array([2.0], "bfloat16")}
    optimizer = optimizers.SGD(1.0, use_ema=True, ema_momentum=0.5)
    tx = optimizer.transformation()
    state = tx.init(weights)
    np.testing.assert_allclose(optimizers.ema_weights(state)["w"], 2.0)
    for _ in range(2):
        deltas, state = tx.update({"w": jnp.array([0.5], "bfloat16")}, state, weights)
        weights = optax.apply_updates(weights, deltas)
    np.testing.assert_allclose(optimizers.ema_weights(state)["w"], 1.25)
    final_weights = optimizer.finalize(state, weights)
    assert final_weights["w"].dtype == "bfloat16"
    outer = optimizers.MultiOptimizer({"w": optimizer, "v": "sgd"})
    state = outer.transformation().init(weights | {"v": jnp.ones(2)})
    assert list(optimizers.ema_weights(state)) == ["w"]
