"""A physics-informed network solves u'' = -pi^2 sin(pi x) with u(0) = u(1) = 0, by L-BFGS."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import fkeras as fk
from fkeras import layers

x = fk.Input((1,))
h = layers.Dense(16, activation="tanh")(layers.Dense(16, activation="tanh")(x))
model = fk.Model(x, layers.Dense(1)(h))


def solution(model, x):
    return x * (1 - x) * model(x[None, None])[0, 0]  # the factors hold the boundary values


def objective(model, state, points, key, training):
    second = jax.vmap(jax.grad(jax.grad(solution, argnums=1), argnums=1), (None, 0))
    residual = second(model, points) + jnp.pi**2 * jnp.sin(jnp.pi * points)
    return fk.Output(jnp.mean(residual**2))


points = jnp.linspace(0, 1, 32)
trainer = fk.Trainer(optax.lbfgs(), objective=objective)
run = trainer.init(model, jax.random.key(0), batch=points)
run, logs = jax.lax.scan(lambda run, _: trainer.step(run, points), run, length=60)

# the equation has a closed solution: sin(pi x)
test = np.linspace(0, 1, 101, dtype="float32")
error = jax.vmap(solution, (None, 0))(run.model, test) - np.sin(np.pi * test)
assert np.abs(error).max() < 1e-3, np.abs(error).max()
