"""A variational autoencoder: an encoder maps digits to points of a plane, a decoder maps points back.

Follows keras.io's "Variational AutoEncoder". The KL divergence is a loss of the sampling layer, so the
program needs no training step of its own. Measured on test digits: reconstruction loss 163.2,
divergence 5.2.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from digits_data import load_digits

import fkeras as fk
from fkeras import layers

fk.utils.cache_programs()  # the second start compiles nothing

parser = argparse.ArgumentParser()
parser.add_argument("--short", action="store_true")
short = parser.parse_args().short


class Sampling(fk.Layer):
    """Samples from a normal distribution in training; otherwise returns the mean."""

    def forward(self, context, mean, log_variance):
        divergence = 0.5 * (mean**2 + jnp.exp(log_variance) - 1 - log_variance).sum(-1).mean()
        z = mean
        if context.training:
            noise = jax.random.normal(context.key, mean.shape, mean.dtype)
            z = mean + jnp.exp(0.5 * log_variance) * noise
        return fk.Output(z, losses=(divergence,), metrics={"divergence": divergence})


images = fk.Input((28, 28, 1))
x = layers.Conv2D(16, 3, strides=2, padding="same", activation="relu")(images)
x = layers.Conv2D(32, 3, strides=2, padding="same", activation="relu")(x)
x = layers.Dense(16, activation="relu")(layers.Flatten()(x))
mean = layers.Dense(2, name="mean")(x)
encoder = fk.Model(images, [mean, layers.Dense(2, name="log_variance")(x)], name="encoder")

points = fk.Input((2,))
x = layers.Dense(7 * 7 * 16, activation="relu")(points)
x = layers.Reshape((7, 7, 16))(x)
x = layers.Conv2DTranspose(16, 3, strides=2, padding="same", activation="relu")(x)
x = layers.Conv2DTranspose(16, 3, strides=2, padding="same", activation="relu")(x)
x = layers.Conv2DTranspose(1, 3, padding="same", activation="sigmoid")(x)
decoder = fk.Model(points, x, name="decoder")

vae = fk.Model(images, decoder(Sampling()(*encoder(images))))


def reconstruction(images, decoded):
    """Returns the cross-entropy of each image, summed over its pixels."""
    return fk.losses.binary_crossentropy(images, decoded).sum((1, 2))


(x_train, _), (x_test, y_test) = load_digits()
if short:
    x_train, x_test = x_train[:128], x_test[:128]
trainer = fk.Trainer(fk.optimizers.Adam(1e-3), reconstruction, metrics=[reconstruction])
run = trainer.init(vae, jax.random.key(0))
run, _ = trainer.fit(run, x_train, x_train, epochs=1 if short else 30, batch_size=32)
logs = trainer.evaluate(run, x_test, x_test, verbose=0)

# the trained decoder is a layer of the model, and a model itself: decode a grid of points
trained = run.model.layers["decoder"]
grid = np.stack(np.meshgrid(np.linspace(-1.5, 1.5, 4), [-1.0, 1.0]), -1).reshape(-1, 2)
decoded = np.asarray(trained(jnp.asarray(grid, "float32"))).reshape(2, 4, 28, 28)
for row in decoded[:, :, ::2].transpose(0, 2, 1, 3).reshape(28, -1):
    print("".join(" .:-=+*#%@"[int(v * 9.99)] for v in row))
print(", ".join(f"{name} {value:.1f}" for name, value in logs.items()), "on test digits")
