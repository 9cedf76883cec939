"""A denoising diffusion implicit model: generates digits by removing noise in a few steps.

Follows keras.io's "Denoising Diffusion Implicit Models" on scikit-learn's digits of 8 x 8 pixels. A
small U-Net estimates the noise in an image; the optimizer averages its weights over the steps.
Measured kernel distances from the test digits: 0.004 for generated digits, 0.26 for noise, 0.001 for
training digits.
"""

import argparse
import math

import jax
import jax.numpy as jnp
from small_digits import kernel_distance, load_small_digits, print_row

import fkeras as fk
from fkeras import layers

fk.utils.cache_programs()  # the second start compiles nothing

parser = argparse.ArgumentParser()
parser.add_argument("--short", action="store_true")
short = parser.parse_args().short
epochs, size, width = (1, 64, 8) if short else (60, 1500, 24)


@fk.ops.lift
def embed(variance):
    """Returns sines and cosines of the noise variance: (b, 1, 1, 1) to (b, 1, 1, 16)."""
    angles = 2 * jnp.pi * jnp.exp(jnp.linspace(0.0, math.log(100.0), 8)) * variance
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)


def block(x, width):
    """Returns the output of a residual block with two convolutions."""
    shortcut = x if x.shape[-1] == width else layers.Conv2D(width, 1)(x)
    x = layers.BatchNormalization(center=False, scale=False)(x)
    x = layers.Conv2D(width, 3, padding="same", activation="swish")(x)
    return shortcut + layers.Conv2D(width, 3, padding="same")(x)


noisy, variance = fk.Input((8, 8, 1), name="noisy"), fk.Input((1, 1, 1), name="variance")
embedding = layers.UpSampling2D(8)(embed(variance))
top = block(layers.Concatenate()([layers.Conv2D(16, 1)(noisy), embedding]), width)
x = block(layers.AveragePooling2D()(top), 2 * width)
x = layers.UpSampling2D(interpolation="bilinear")(x)
x = block(layers.Concatenate()([x, top]), width)
network = fk.Model([noisy, variance], layers.Conv2D(1, 1, kernel_initializer="zeros")(x))


def rates(time):
    """Returns `(noise rate, signal rate)` of the cosine schedule at a time from 0 to 1."""
    start, end = math.acos(0.95), math.acos(0.02)
    angle = start + time * (end - start)
    return jnp.sin(angle), jnp.cos(angle)


def objective(model, state, images, key, training):
    """Mean absolute error of the estimated noise in images with random noise rates."""
    noise_key, time_key, call_key = jax.random.split(key, 3)
    noise = jax.random.normal(noise_key, images.shape)
    noise_rate, signal_rate = rates(jax.random.uniform(time_key, (len(images), 1, 1, 1)))
    noisy_images = signal_rate * images + noise_rate * noise
    inputs = [noisy_images, noise_rate**2]
    out = model.apply(inputs, state=state, training=training, key=call_key)
    denoised = (noisy_images - noise_rate * out.value) / signal_rate
    metrics = {"image_loss": jnp.abs(denoised - images).mean()}
    return fk.Output(jnp.abs(out.value - noise).mean(), out.updates, metrics=metrics)


@jax.jit
def generate(model, state, noise):
    """Generates images in 20 steps: each estimates the image and mixes in less noise than before."""

    def step(number, carry):
        noisy_images, _ = carry
        noise_rate, signal_rate = rates(1 - number / 20)
        variance = jnp.full((len(noisy_images), 1, 1, 1), noise_rate**2)
        estimated_noise = model([noisy_images, variance], state=state)
        denoised = (noisy_images - noise_rate * estimated_noise) / signal_rate
        noise_rate, signal_rate = rates(1 - (number + 1) / 20)
        return signal_rate * denoised + noise_rate * estimated_noise, denoised

    return jax.lax.fori_loop(0, 20, step, (noise, noise))[1]


x_train, x_test = load_small_digits()
x_train, x_test = x_train[:size], x_test[:size]
mean, deviation = x_train.mean(), x_train.std()
optimizer = fk.optimizers.AdamW(2e-3, weight_decay=1e-4, use_ema=True, ema_momentum=0.99)
trainer = fk.Trainer(optimizer, objective=objective)
run = trainer.init(network, jax.random.key(0))
run, _ = trainer.fit(run, (x_train - mean) / deviation, epochs=epochs, batch_size=32)

logs = trainer.evaluate(run, (x_test - mean) / deviation, verbose=0)
noise = jax.random.normal(jax.random.key(1), x_test.shape)
generated, noise_images = (
    jnp.clip(x * deviation + mean, 0, 1) for x in (generate(run.model, run.state, noise), noise)
)
print_row(generated[:8])
print(f"test error of the noise {logs['loss']:.3f}, of the image {logs['image_loss']:.3f}")
print(
    f"kernel distance from test digits: {kernel_distance(generated, x_test):.4f}; of training "
    f"digits {kernel_distance(x_train[:297], x_test):.4f}, "
    f"of noise {kernel_distance(noise_images, x_test):.4f}"
)
