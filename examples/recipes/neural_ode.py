"""A neural ODE: a network is the derivative of a state, and learns a spiral from one trajectory."""

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

import fkeras as fk
from fkeras import layers

y = fk.Input((2,))
derivative = fk.Model(y, layers.Dense(2)(layers.Dense(32, activation="tanh")(y)))


def solve(model, start, steps, dt=0.1):
    """Returns the states after each step of the Runge-Kutta method of fourth order."""

    def advance(y, _):
        a = model(y)
        b = model(y + dt / 2 * a)
        c = model(y + dt / 2 * b)
        y = y + dt / 6 * (a + 2 * b + 2 * c + model(y + dt * c))
        return y, y

    return jax.lax.scan(advance, start, length=steps)[1]


def objective(model, state, batch, key, training):
    return fk.Output(jnp.mean((solve(model, batch[:, 0], 10) - batch[:, 1:].swapaxes(0, 1)) ** 2))


spiral = np.array([[-0.1, 2.0], [-2.0, -0.1]])


def exact(start, steps):
    return np.array([scipy.linalg.expm(spiral * 0.1 * i) @ start for i in range(steps)], "float32")


path = exact([2.0, 0.0], 61)
pieces = np.stack([path[i : i + 11] for i in range(0, 50)])
rate = fk.optimizers.schedules.CosineDecay(0.03, 600)
trainer = fk.Trainer(fk.optimizers.Adam(rate), objective=objective)
run = trainer.init(derivative, jax.random.key(0), batch=pieces)
run, _ = jax.lax.scan(lambda run, _: trainer.step(run, pieces), run, length=600)

# from another start, beside the matrix exponential
other = exact([0.0, 1.5], 21)
np.testing.assert_allclose(solve(run.model, other[:1], 20)[:, 0], other[1:], atol=0.1)
