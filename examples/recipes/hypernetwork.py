"""A hypernetwork writes the weights of another network: one curve for each number that it receives."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import fkeras as fk
from fkeras import layers

x = fk.Input((1,))
target = fk.Model(x, layers.Dense(1, name="out")(layers.Dense(8, activation="tanh", name="in")(x)))
weights, restore = ravel_pytree(target.build(jax.random.key(0)))
number = fk.Input((1,))
h = layers.Dense(32, activation="tanh")(number)
writer = fk.Model(number, layers.Dense(weights.size)(h))


def predict(writer, numbers, x):  # x: (numbers, points, 1)
    return jax.vmap(lambda written, x: restore(written)(x))(weights[None] + writer(numbers), x)


def objective(writer, state, batch, key, training):
    numbers, x, y = batch
    return fk.Output(jnp.mean((predict(writer, numbers, x) - y) ** 2))


numbers = np.linspace(0.5, 2, 16, dtype="float32")[:, None]
points = np.broadcast_to(np.linspace(-2, 2, 40, dtype="float32")[:, None], (16, 40, 1))
curves = np.sin(numbers[:, None] * points)
trainer = fk.Trainer(fk.optimizers.Adam(0.01), objective=objective)
batch = numbers[::2], points[::2], curves[::2]
run = trainer.init(writer, jax.random.key(1), batch=batch)
run, _ = jax.lax.scan(lambda run, _: trainer.step(run, batch), run, length=500)
predicted = predict(run.model, numbers, points)
assert np.abs(predicted - curves)[1:-1:2].mean() < 0.05  # numbers between those of the training

# one written network, layer by layer
written = restore(weights + run.model(numbers[3:4])[0])
first, last = written.layers["in"], written.layers["out"]
by_hand = np.tanh(points[3] @ first.kernel + first.bias[None]) @ last.kernel + last.bias[None]
np.testing.assert_allclose(predicted[3], by_hand, atol=1e-5)
