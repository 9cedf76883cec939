"""Classification of digits with a hand-written training step: JAX's transforms and optax."""

import argparse
from functools import partial

import jax
import numpy as np
import optax  # type: ignore[import-untyped]
from digits_cnn import make_model
from digits_data import load_digits

import fkeras as fk

fk.utils.cache_programs()  # the second start compiles nothing

parser = argparse.ArgumentParser()
parser.add_argument("--short", action="store_true")
short = parser.parse_args().short

(x_train, y_train), (x_test, y_test) = load_digits()
optimizer = optax.adam(1e-3)
model = make_model(convolutions=1 if short else 2).build(jax.random.key(0))
state, opt_state = model.init_state(), optimizer.init(model)


@partial(jax.jit, donate_argnums=(0, 1, 2))
def step(model, state, opt_state, x, y, key):
    def loss_fn(model):
        out = model.apply(x, state=state, training=True, key=key)
        log_probabilities = jax.numpy.log(out.value + 1e-7)
        loss = -jax.numpy.take_along_axis(log_probabilities, y[:, None], axis=1).mean()
        # `out.losses` are losses of layers; `out.updates` are new moving statistics
        return loss + sum(out.losses), out.updates

    (loss, updates), grads = jax.value_and_grad(loss_fn, has_aux=True)(model)
    deltas, opt_state = optimizer.update(grads, opt_state, model)
    return optax.apply_updates(model, deltas), state | updates, opt_state, loss


steps, rng = (8 if short else 500), np.random.default_rng(0)
for number in range(steps):
    rows = rng.integers(0, len(x_train), 64)
    key = jax.random.fold_in(jax.random.key(1), number)
    model, state, opt_state, loss = step(model, state, opt_state, x_train[rows], y_train[rows], key)
    if number % 100 == 0 or number == steps - 1:
        predictions = np.asarray(model(x_test, state=state)).argmax(-1)
        print(
            f"step {number:4d}  loss {loss:.4f}  test accuracy {np.mean(predictions == y_test):.2%}"
        )
