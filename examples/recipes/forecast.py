"""A probabilistic forecast: quantiles by the pinball loss, and a normal distribution by its likelihood."""

import jax
import jax.numpy as jnp
import numpy as np

import fkeras as fk
from fkeras import layers

LEVELS = np.array([[0.1, 0.5, 0.9]], "float32")
rng = np.random.default_rng(0)
time = np.arange(3000)
mean = np.sin(time / 8)
deviation = 0.1 + 0.2 * (np.cos(time / 8) > 0)  # a noise that depends on the phase
series = (mean + deviation * rng.normal(size=3000)).astype("float32")
windows = np.lib.stride_tricks.sliding_window_view(series, 25)
x, y = windows[:, :24], windows[:, 24:]

past = fk.Input((24,))
h = layers.Dense(64, activation="relu")(layers.Dense(64, activation="relu")(past))
quantiles = layers.Dense(3, name="quantiles")(h)
normal = layers.Dense(2, name="normal")(h)  # mean, and logarithm of the standard deviation
model = fk.Model(past, {"quantiles": quantiles, "normal": normal})


def pinball(y_true, y_pred):
    error = y_true - y_pred
    return jnp.maximum(LEVELS * error, (LEVELS - 1) * error).mean(axis=-1)


def likelihood(y_true, y_pred):
    mean, log = y_pred[:, 0], y_pred[:, 1]
    return 0.5 * ((y_true[:, 0] - mean) / jnp.exp(log)) ** 2 + log


trainer = fk.Trainer(fk.optimizers.Adam(0.002), {"quantiles": pinball, "normal": likelihood})
run = trainer.init(model, jax.random.key(0))
targets = {"quantiles": y[:2000], "normal": y[:2000]}
run, _ = trainer.fit(run, x[:2000], targets, epochs=20, verbose=0)

# the noise of the series is known
out = trainer.predict(run, x[2000:])
inside = (y[2000:, 0] > out["quantiles"][:, 0]) & (y[2000:, 0] < out["quantiles"][:, 2])
assert abs(inside.mean() - 0.8) < 0.05, inside.mean()
assert np.abs(out["normal"][:, 0] - mean[2024:]).mean() < 0.1
assert np.abs(np.exp(out["normal"][:, 1]) - deviation[2024:]).mean() < 0.06
