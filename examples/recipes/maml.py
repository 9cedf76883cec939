"""Model-agnostic meta-learning (MAML): weights from which one gradient step learns a new sine."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import fkeras as fk
from fkeras import layers

x = fk.Input((1,))
h = layers.Dense(32, activation="tanh")(layers.Dense(32, activation="tanh")(x))
model = fk.Model(x, layers.Dense(1)(h))


def error(model, x, y):
    return jnp.mean((model(x) - y) ** 2)


def adapt(model, x, y):
    return jax.tree.map(lambda w, g: w - 0.1 * g, model, jax.grad(error)(model, x, y))


def objective(model, state, tasks, key, training):
    @jax.vmap
    def after(x, y):  # the first 10 rows of a task adapt, the others judge
        return error(adapt(model, x[:10], y[:10]), x[10:], y[10:])

    return fk.Output(after(*tasks).mean())


def draw(key):
    keys = jax.random.split(key, 2)
    x = jax.random.uniform(keys[0], (8, 20, 1), minval=-3, maxval=3)
    phase = jax.random.uniform(keys[1], (8, 1, 1), maxval=jnp.pi)
    return x, jnp.sin(x + phase)


trainer = fk.Trainer(fk.optimizers.Adam(0.005), objective=objective)
run = trainer.init(model, jax.random.key(0), batch=draw(jax.random.key(1)))
keys = jax.random.split(jax.random.key(2), 500)
run, logs = jax.lax.scan(lambda run, key: trainer.step(run, draw(key)), run, keys)
tasks = draw(jax.random.key(3))
loss = jax.jit(lambda model: objective(model, {}, tasks, None, True).value)
before = jnp.mean(jax.vmap(error, (None, 0, 0))(run.model, *tasks))
assert loss(run.model) < before / 4, (loss(run.model), before)

# the gradient through the gradient step, beside a difference quotient
gradient = jax.grad(loss)(run.model)
along = lambda t: loss(jax.tree.map(lambda w, g: w + t * g, run.model, gradient))
quotient = (along(1e-2) - along(-1e-2)) / 2e-2
np.testing.assert_allclose(quotient, optax.tree.norm(gradient, squared=True), rtol=0.05)
