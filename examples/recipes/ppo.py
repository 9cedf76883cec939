"""Proximal policy optimization (PPO): 64 walkers learn to go to the middle, in one `jax.lax.scan`."""

import jax
import jax.numpy as jnp
import numpy as np

import fkeras as fk
from fkeras import layers

place = fk.Input((1,))
h = layers.Dense(32, activation="tanh")(place)
model = fk.Model(place, [layers.Dense(3)(h), layers.Reshape(())(layers.Dense(1)(h))])


def log_of(action, logits):
    return -fk.losses.sparse_categorical_crossentropy(action, logits, from_logits=True)


def advantages(reward, value, discount=0.9, decay=0.9):  # value: of one step more than reward
    error = reward + discount * value[1:] - value[:-1]
    back = lambda later, error: (error + discount * decay * later,) * 2
    return jax.lax.scan(back, jnp.zeros_like(error[0]), error, reverse=True)[1]


def objective(model, state, batch, key, training):
    logits, value = model(batch["place"])
    ratio = jnp.exp(log_of(batch["action"], logits) - batch["log"])
    gain = jnp.minimum(ratio * batch["gain"], jnp.clip(ratio, 0.8, 1.2) * batch["gain"])
    return fk.Output(jnp.mean((value - batch["gain"] - batch["value"]) ** 2 - gain))


def walk(model, place, key):
    logits, value = model(place)
    action = jax.random.categorical(key, logits)
    moved = jnp.clip(place + jnp.array([-0.1, 0.0, 0.1])[action][:, None], -1, 1)
    step = {"place": place, "action": action, "log": log_of(action, logits), "value": value}
    return moved, step | {"reward": -jnp.abs(moved[:, 0])}


def improve(run, key):
    place = jax.random.uniform(key, (64, 1), minval=-1, maxval=1)
    keys = jax.random.split(key, 16)
    place, batch = jax.lax.scan(lambda place, key: walk(run.model, place, key), place, keys)
    value = jnp.concatenate([batch["value"], run.model(place)[1][None]])
    batch["gain"] = advantages(batch["reward"], value)
    batch = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), batch)
    run, _ = jax.lax.scan(lambda run, _: trainer.step(run, batch), run, length=4)
    return run, batch["reward"].mean()


trainer = fk.Trainer(fk.optimizers.Adam(0.01), objective=objective)
run = trainer.init(model, jax.random.key(0))
run, rewards = jax.lax.scan(improve, run, jax.random.split(jax.random.key(1), 50))
assert rewards[-1] > rewards[0] + 0.3, rewards

# the sums that define the advantages, term by term
reward, value = np.split(np.random.default_rng(0).normal(size=11).astype("float32"), [5])
error = reward + 0.9 * value[1:] - value[:-1]
expected = [sum(0.81**k * error[t + k] for k in range(5 - t)) for t in range(5)]
np.testing.assert_allclose(advantages(reward, value), expected, atol=1e-5)
