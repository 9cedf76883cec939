"""Laplace's approximation: the Hessian at the trained weights of the last layer gives error bars."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import fkeras as fk
from fkeras import layers

NOISE = 0.1  # standard deviation of the targets; the prior of a weight of the head is normal(0, 1)
rng = np.random.default_rng(0)
x = rng.uniform(-1, 1, (40, 1)).astype("float32")
y = (np.sin(3 * x) + rng.normal(0, NOISE, x.shape)).astype("float32")
inputs = fk.Input((1,))
body = layers.Dense(20, activation="tanh", name="body")(inputs)
model = fk.Model(inputs, layers.Dense(1, name="head")(body))
trainer = fk.Trainer(fk.optimizers.Adam(0.02), "mse")
run, _ = trainer.run(trainer.init(model, jax.random.key(0)), (x, y), epochs=200, batch_size=40)

head, frozen = fk.partition(fk.freeze(run.model, "body"))
weights, restore = ravel_pytree(head)


def predict(weights, x):
    return fk.combine(restore(weights), frozen)(x)[:, 0]


def energy(weights):  # -log posterior of the head
    return jnp.sum((predict(weights, x) - y[:, 0]) ** 2) / (2 * NOISE**2) + weights @ weights / 2


covariance = jnp.linalg.inv(jax.hessian(energy)(weights))
test = np.array([[0.0], [3.0]], "float32")  # inside and outside of the data
slope = jax.jacobian(predict)(weights, test)
deviation = jnp.sqrt(jnp.einsum("nw,wv,nv->n", slope, covariance, slope))
assert deviation[1] > 10 * deviation[0]

# with fixed features, the posterior of the head has a closed form
features = fk.transforms.cut(run.model, outputs="body")
ones = [np.append(features(rows), np.ones((len(rows), 1)), axis=1) for rows in (x, test)]
exact = np.linalg.inv(ones[0].T @ ones[0] / NOISE**2 + np.eye(21))
exact = np.sqrt(np.diag(ones[1] @ exact @ ones[1].T))
np.testing.assert_allclose(deviation, exact, rtol=0.01)
