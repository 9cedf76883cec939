"""A generative adversarial network: a generator learns to draw digits."""

import argparse
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]
from digits_data import load_digits

import fkeras as fk
from fkeras import layers

parser = argparse.ArgumentParser()
parser.add_argument("--short", action="store_true")
steps = 20 if parser.parse_args().short else 3000

noise, image = fk.Input((32,)), fk.Input((784,))
h = layers.BatchNormalization()(layers.Dense(256, activation="relu")(noise))
generator = fk.Model(noise, layers.Dense(784, activation="sigmoid")(h)).build(jax.random.key(0))
h = layers.Dropout(0.3)(layers.Dense(256, activation="leaky_relu")(image))
critic = fk.Model(image, layers.Dense(1)(h)).build(jax.random.key(1))
optimizer = optax.adam(2e-4, b1=0.5)


@partial(jax.jit, donate_argnums=0)
def step(run, real, key):
    generator, critic, state, g_opt, c_opt = run
    k1, k2, k3, k4 = jax.random.split(key, 4)
    z = jax.random.normal(k1, (len(real), 32))
    drawn = generator.apply(z, state=state, training=True)
    judge = lambda critic, x, key: critic.apply(x, training=True, key=key).value

    def critic_loss(critic):
        good, bad = judge(critic, real, k2), judge(critic, drawn.value, k3)
        return jnp.mean(jax.nn.softplus(-good)) + jnp.mean(jax.nn.softplus(bad))

    def generator_loss(generator):
        fake = generator.apply(z, state=state, training=True).value
        return jnp.mean(jax.nn.softplus(-judge(critic, fake, k4)))

    c_loss, c_grads = jax.value_and_grad(critic_loss)(critic)
    g_loss, g_grads = jax.value_and_grad(generator_loss)(generator)
    c_deltas, c_opt = optimizer.update(c_grads, c_opt)
    g_deltas, g_opt = optimizer.update(g_grads, g_opt)
    generator, critic = (
        optax.apply_updates(m, d) for m, d in ((generator, g_deltas), (critic, c_deltas))
    )
    return (generator, critic, state | drawn.updates, g_opt, c_opt), (c_loss, g_loss)


x = load_digits()[0][0].reshape(-1, 784)
run = (generator, critic, generator.init_state(), optimizer.init(generator), optimizer.init(critic))
for number in range(steps):
    rows = np.random.default_rng(number).integers(0, len(x), 64)
    run, losses = step(run, x[rows], jax.random.key(number))
    if number % 500 == 0 or number == steps - 1:
        print(f"step {number:4d}  critic {losses[0]:.3f}  generator {losses[1]:.3f}")
drawn = run[0](jax.random.normal(jax.random.key(9), (4, 32)), state=run[2])
for row in np.asarray(drawn).reshape(4, 28, 28)[:, ::2].transpose(1, 0, 2).reshape(14, -1):
    print("".join(" .:-=+*#%@"[int(v * 9.99)] for v in row))
