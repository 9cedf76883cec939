"""Loss scaling against Keras."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fkeras import optimizers
from tests.support.optimizer_problem import STEPS, assert_trees_close, keras_steps, ours, problem


@pytest.mark.exhaustive
@pytest.mark.parametrize("overflows", [(), (2, 3, 9)], ids=str)
def test_dynamic_loss_scale_equals_keras(overflows):
    weights, gradients = problem()
    for index in overflows:
        gradients["bias"] = gradients["bias"].at[index, 1].set(jnp.inf if index % 2 else jnp.nan)
    optimizer = optimizers.LossScaleOptimizer(optimizers.Adam(0.01), 8.0, dynamic_growth_steps=3)
    mine, state = ours(optimizer, weights, gradients)
    expected, _, keras_state = keras_steps(optimizer, weights, gradients)
    assert_trees_close(mine, expected)
    keras_slots = {path.split("/")[-1]: value for path, value in keras_state.items()}
    assert float(state.scale) == keras_slots["dynamic_scale"] != 8.0
    assert int(state.step_counter) == keras_slots["step_counter"]
    assert int(state.inner.count) == STEPS - len(overflows)


def test_a_dynamic_loss_scale_stays_a_power_of_two():
    for scale, gradient in ((2.0**127, 1.0), (2.0**-126, jnp.nan)):
        tx = optimizers.LossScaleOptimizer("sgd", scale, dynamic_growth_steps=1).transformation()
        _, state = tx.update(jnp.float32(gradient), tx.init(jnp.float32(0.0)))
        assert float(state.scale) == scale


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_scaled_losses_and_gradients_cancel(dtype):
    weights = {"w": jnp.array([2.0], dtype)}
    for optimizer in (
        optimizers.SGD(1.0, loss_scale_factor=512.0),
        optimizers.LossScaleOptimizer(optimizers.SGD(1.0, loss_scale_factor=3.0)),
        optimizers.LossScaleOptimizer(optax.sgd(1.0)),
        optimizers.MultiOptimizer({"*": optimizers.SGD(1.0)}, loss_scale_factor=512.0),
    ):
        tx = optimizer.transformation()
        state = tx.init(weights)

        @jax.jit
        def both(state, optimizer=optimizer, tx=tx):
            def loss(weights):
                return optimizer.scale_loss(jnp.sum(weights["w"] * 2.0**-14), state)

            gradient = jax.grad(loss)(weights)
            return [tx.update(gradient, state, given)[0] for given in (weights, None)]

        for deltas in both(state):
            assert deltas["w"].dtype == dtype
            np.testing.assert_allclose(deltas["w"].astype("float32"), -(2.0**-14))
    plain = optimizers.SGD().scale_loss(jnp.float32(2.0), None)
    assert float(plain) == 2.0
