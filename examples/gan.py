"""A generative adversarial network: a generator of digits and a discriminator in one jitted step."""

import argparse
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]
from digits_data import load_digits

import fkeras as fk
from fkeras import layers

fk.utils.cache_programs()  # the second start compiles nothing

parser = argparse.ArgumentParser()
parser.add_argument("--short", action="store_true")
steps = 20 if parser.parse_args().short else 3000

noise, image = fk.Input((32,)), fk.Input((784,))
h = layers.BatchNormalization()(layers.Dense(256, activation="relu")(noise))
generator = fk.Model(noise, layers.Dense(784, activation="sigmoid")(h)).build(jax.random.key(0))
h = layers.Dropout(0.3)(layers.Dense(256, activation="leaky_relu")(image))
discriminator = fk.Model(image, layers.Dense(1)(h)).build(jax.random.key(1))
optimizer = optax.adam(2e-4, b1=0.5)


@partial(jax.jit, donate_argnums=0)
def step(run, real, key):
    generator, discriminator, state, g_opt, d_opt = run
    # dropout of the discriminator draws with other keys in each of its three calls
    noise_key, real_key, fake_key, generator_key = jax.random.split(key, 4)
    z = jax.random.normal(noise_key, (len(real), 32))
    generated = generator.apply(z, state=state, training=True)

    def score(discriminator, x, key):
        return discriminator.apply(x, training=True, key=key).value

    def discriminator_loss(discriminator):
        real_scores = score(discriminator, real, real_key)
        fake_scores = score(discriminator, generated.value, fake_key)
        return jnp.mean(jax.nn.softplus(-real_scores)) + jnp.mean(jax.nn.softplus(fake_scores))

    def generator_loss(generator):
        fake = generator.apply(z, state=state, training=True).value
        return jnp.mean(jax.nn.softplus(-score(discriminator, fake, generator_key)))

    d_loss, d_grads = jax.value_and_grad(discriminator_loss)(discriminator)
    g_loss, g_grads = jax.value_and_grad(generator_loss)(generator)
    d_deltas, d_opt = optimizer.update(d_grads, d_opt)
    g_deltas, g_opt = optimizer.update(g_grads, g_opt)
    generator = optax.apply_updates(generator, g_deltas)
    discriminator = optax.apply_updates(discriminator, d_deltas)
    return (generator, discriminator, state | generated.updates, g_opt, d_opt), (d_loss, g_loss)


x = load_digits()[0][0].reshape(-1, 784)
run = (
    generator,
    discriminator,
    generator.init_state(),
    optimizer.init(generator),
    optimizer.init(discriminator),
)
for number in range(steps):
    rows = np.random.default_rng(number).integers(0, len(x), 64)
    run, losses = step(run, x[rows], jax.random.key(number))
    if number % 500 == 0 or number == steps - 1:
        print(f"step {number:4d}  discriminator {losses[0]:.3f}  generator {losses[1]:.3f}")
generated = run[0](jax.random.normal(jax.random.key(9), (4, 32)), state=run[2])
for row in np.asarray(generated).reshape(4, 28, 28)[:, ::2].transpose(1, 0, 2).reshape(14, -1):
    print("".join(" .:-=+*#%@"[int(v * 9.99)] for v in row))
