"""A donated training step over an fkeras model against the same step in raw JAX over a dict.

    python benchmarks/step.py [rounds]

Goal: at most 1.1 times, for 4 x Dense(64) with batch 32 (dispatch-bound) and a small convolutional
network. Both sides start from the same weights; the losses after all steps must agree.
"""

import sys

import jax
import jax.numpy as jnp
import meter
import numpy as np
import optax

import fkeras as fk
from fkeras import layers

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 15
optimizer = optax.adam(1e-3)


def cross_entropy(logits, y):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1).mean()


def mlp():
    x = h = fk.Input((32,))
    for _ in range(4):
        h = layers.Dense(64, activation="relu")(h)
    return fk.Model(x, layers.Dense(10)(h))


def raw_mlp(params, state, x):
    for name in ("dense", "dense_1", "dense_2", "dense_3"):
        x = jax.nn.relu(x @ params[name]["kernel"] + params[name]["bias"])
    return x @ params["dense_4"]["kernel"] + params["dense_4"]["bias"], state


def convnet():
    x = h = fk.Input((16, 16, 3))
    for filters in (16, 32):
        h = layers.Conv2D(filters, 3, padding="same", use_bias=False)(h)
        h = layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(h)
        h = layers.MaxPooling2D()(layers.Activation("relu")(h))
    return fk.Model(x, layers.Dense(10)(layers.GlobalAveragePooling2D()(h)))


def raw_convnet(params, state, x):
    new = {}
    for conv, norm in (("conv2d", "batch_normalization"), ("conv2d_1", "batch_normalization_1")):
        x = jax.lax.conv_general_dilated(
            x, params[conv]["kernel"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        mean = x.mean((0, 1, 2))
        variance = jnp.square(x - mean).mean((0, 1, 2))
        old = state[norm]
        new[norm] = {
            "moving_mean": 0.9 * old["moving_mean"] + 0.1 * mean,
            "moving_variance": 0.9 * old["moving_variance"] + 0.1 * variance,
        }
        scale = jax.lax.rsqrt(variance + 1e-5) * params[norm]["gamma"]
        x = jax.nn.relu(x * scale + (params[norm]["beta"] - mean * scale))
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return x.mean((1, 2)) @ params["dense"]["kernel"] + params["dense"]["bias"], new


def fkeras_step(model, state, opt_state, x, y):
    def loss_fn(model):
        out = model.apply(x, state=state, training=True)
        return cross_entropy(out.value, y) + sum(out.losses), out.updates

    (loss, updates), grads = jax.value_and_grad(loss_fn, has_aux=True)(model)
    deltas, opt_state = optimizer.update(grads, opt_state, model)
    return optax.apply_updates(model, deltas), state | updates, opt_state, loss


def raw_step(forward):
    def step(params, state, opt_state, x, y):
        def loss_fn(params):
            logits, new = forward(params, state, x)
            return cross_entropy(logits, y), new

        (loss, state_), grads = jax.value_and_grad(loss_fn, has_aux=True)(params)
        deltas, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, deltas), state_, opt_state, loss

    return step


def as_dict(model):
    params = {}
    for (path,), leaf in jax.tree_util.tree_flatten_with_path(model)[0]:
        layer, name = path.name.split("/")
        params.setdefault(layer, {})[name] = jnp.array(leaf)
    return params


class Contender:
    """A step and what it carries."""

    def __init__(self, step, weights, state):
        self.step = jax.jit(step, donate_argnums=(0, 1, 2))
        copy = jax.tree.map(jnp.array, (weights, state))
        self.carry = (*copy, optimizer.init(weights))

    def run(self, count, x, y):
        for _ in range(count):
            *self.carry, loss = self.step(*self.carry, x, y)
        self.loss = jax.block_until_ready(loss)


def bench(title, make, forward, shape, batch, count):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(batch, *shape)).astype("float32")
    y = rng.integers(0, 10, batch).astype("int32")
    model = make().build(jax.random.key(0))
    state = model.init_state()
    ours = Contender(fkeras_step, model, state)
    raw = Contender(raw_step(forward), as_dict(model), state)
    again = Contender(raw_step(forward), as_dict(model), state)
    everyone = {"raw JAX": raw, "raw JAX, a second copy": again, "fkeras": ours}
    for one in everyone.values():
        one.run(2, x, y)
    times = meter.compare(
        {name: lambda one=one: one.run(count, x, y) for name, one in everyone.items()}, ROUNDS
    )
    np.testing.assert_allclose(ours.loss, raw.loss, rtol=2e-2, atol=2e-3)
    return meter.report(f"{title}, {count} steps a round", times, ("fkeras", 1.1))


if __name__ == "__main__":
    bench("4 x Dense(64), batch 32", mlp, raw_mlp, (32,), 32, 200)
    bench("small convolutional network, batch 32", convnet, raw_convnet, (16, 16, 3), 32, 10)
