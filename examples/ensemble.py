"""An ensemble of eight networks, trained at once by `jax.vmap` of `build` and of the training step."""

import argparse

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
steps = 5 if parser.parse_args().short else 300

x = fk.Input((28, 28, 1))
h = layers.Dense(64, activation="relu")(layers.Flatten()(x))
model = fk.Model(x, layers.Dense(10)(h))
optimizer = optax.adam(1e-3)


def step(model, opt_state, x, y):
    def loss_fn(model):
        return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()

    loss, grads = jax.value_and_grad(loss_fn)(model)
    deltas, opt_state = optimizer.update(grads, opt_state, model)
    return optax.apply_updates(model, deltas), opt_state, loss


(x_train, y_train), (x_test, y_test) = load_digits()
members = jax.vmap(model.build)(jax.random.split(jax.random.key(0), 8))
opt_state = jax.vmap(optimizer.init)(members)
train = jax.jit(jax.vmap(step))  # each network gets different batches
for number in range(steps):
    rows = np.random.default_rng(number).integers(0, len(x_train), (8, 64))
    members, opt_state, losses = train(members, opt_state, x_train[rows], y_train[rows])
logits = jax.jit(jax.vmap(lambda member: member(x_test)))(members)
single = np.mean(np.asarray(logits).argmax(-1) == y_test, axis=1)
ensemble = np.mean(np.asarray(jnp.mean(jax.nn.softmax(logits), axis=0)).argmax(-1) == y_test)
print(f"test accuracy: single networks {single.min():.2%} to {single.max():.2%}", end=", ")
print(f"ensemble {ensemble:.2%}")
