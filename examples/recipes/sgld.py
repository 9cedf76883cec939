"""Stochastic gradient Langevin dynamics (SGLD) samples the weights of a regression from their posterior."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import fkeras as fk
from fkeras import layers

NOISE, RATE = 0.5, 5e-4  # standard deviation of the targets; the prior of a weight is normal(0, 1)
rng = np.random.default_rng(0)
x = rng.normal(size=(50, 3)).astype("float32")
y = (x @ [[1.0], [-2.0], [0.5]] + rng.normal(0, NOISE, (50, 1))).astype("float32")
model = fk.Sequential([fk.Input((3,)), layers.Dense(1, use_bias=False, name="dense")])


def energy(model, x, y):  # -log posterior, estimated from some of the 50 rows
    likelihood = 50 / len(x) * jnp.sum((model(x) - y) ** 2) / (2 * NOISE**2)
    return likelihood + optax.tree.norm(model, squared=True) / 2


def sample(model, key):
    rows = jax.random.choice(key, 50, (25,), replace=False)
    grads = jax.grad(energy)(model, jnp.asarray(x)[rows], jnp.asarray(y)[rows])
    noise = optax.tree.random_like(key, model)
    move = lambda w, g, n: w - RATE / 2 * g + RATE**0.5 * n
    model = jax.tree.map(move, model, grads, noise)
    return model, model  # `samples` is a model, with one more axis in each weight


keys = jax.random.split(jax.random.key(1), 20_000)
_, samples = jax.lax.scan(sample, model.build(jax.random.key(0)), keys)
kernels = np.asarray(samples.layers["dense"].kernel[1000:, :, 0])
predictions = jax.vmap(lambda model: model(x))(samples)  # of each sample, (20000, 50, 1)

# the posterior of a linear regression has a closed form
covariance = np.linalg.inv(x.T @ x / NOISE**2 + np.eye(3))
mean = covariance @ x.T @ y[:, 0] / NOISE**2
np.testing.assert_allclose(kernels.mean(0), mean, atol=0.02)
np.testing.assert_allclose(kernels.std(0), np.sqrt(np.diag(covariance)), rtol=0.1)
np.testing.assert_allclose(predictions[1000:].mean(0), x @ mean[:, None], atol=0.05)
