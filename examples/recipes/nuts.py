"""The No-U-Turn sampler (NUTS) of blackjax samples the weights of a regression from their posterior."""

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import optax

import fkeras as fk
from fkeras import layers

NOISE = 0.5  # standard deviation of the targets; the prior of a weight is normal(0, 1)
rng = np.random.default_rng(0)
x = rng.normal(size=(50, 3)).astype("float32")
y = (x @ [[1.0], [-2.0], [0.5]] + rng.normal(0, NOISE, (50, 1))).astype("float32")
model = fk.Sequential([fk.Input((3,)), layers.Dense(1, use_bias=False, name="dense")])
model = model.build(jax.random.key(0))


def log_posterior(model):
    likelihood = -jnp.sum((model(x) - y) ** 2) / (2 * NOISE**2)
    return likelihood - optax.tree.norm(model, squared=True) / 2


warmup = blackjax.window_adaptation(blackjax.nuts, log_posterior)
(state, parameters), _ = warmup.run(jax.random.key(1), model, num_steps=300)
kernel = blackjax.nuts(log_posterior, **parameters)


@jax.jit
def sample(state, key):
    state, _ = kernel.step(key, state)
    return state, state.position  # a model


_, samples = jax.lax.scan(sample, state, jax.random.split(jax.random.key(2), 2000))
kernels = np.asarray(samples.layers["dense"].kernel[:, :, 0])

# the posterior of a linear regression has a closed form
covariance = np.linalg.inv(x.T @ x / NOISE**2 + np.eye(3))
mean = covariance @ x.T @ y[:, 0] / NOISE**2
np.testing.assert_allclose(kernels.mean(0), mean, atol=0.02)
np.testing.assert_allclose(np.cov(kernels.T), covariance, atol=1e-3)
