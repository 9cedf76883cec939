"""Deep Q-learning: a network learns to balance a pole on a cart.

The environment is a function of JAX, and 1,000 steps of acting and learning are one compiled
program: the replay memory, the trained network and its delayed copy are values that a
`jax.lax.scan` carries. After 15,000 steps the pole stays up to the end of the episode.
"""

import argparse
import time
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import fkeras as fk
from fkeras import layers

LIMIT = 500  # steps of an episode
CARTS, MEMORY, BATCH, DISCOUNT = 8, 100_000, 128, 0.99


# -- the environment: CartPole of Barto, Sutton and Anderson, with the numbers of OpenAI's Gym ------


def reset(key):
    """A cart near the middle: position, speed, angle, angular speed; and the steps so far."""
    return jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05), jnp.zeros((), "int32")


def move(cart, action):
    """`(cart, fell)` after 0.02 s of a push to the left (0) or to the right (1)."""
    (x, speed, angle, turn), steps = cart
    push = jnp.where(action == 1, 10.0, -10.0)
    sin, cos = jnp.sin(angle), jnp.cos(angle)
    # mass of the cart 1, of the pole 0.1, half of the pole's length 0.5
    forward = (push + 0.05 * turn**2 * sin) / 1.1
    bend = (9.8 * sin - cos * forward) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
    drive = forward - 0.05 * bend * cos / 1.1
    after = jnp.stack([x + 0.02 * speed, speed + 0.02 * drive, angle + 0.02 * turn, turn])
    after = after.at[3].add(0.02 * bend)
    fell = (jnp.abs(after[0]) > 2.4) | (jnp.abs(after[2]) > 12 * jnp.pi / 180)
    return (after, steps + 1), fell


# -- learning ---------------------------------------------------------------------------------------


def bellman(model, state, batch, key, training):
    """The loss between the values of the chosen actions and the returns, and their mean value."""
    out = model.apply(batch["states"], state=state, training=training, key=key)
    values = jnp.take_along_axis(out.value, batch["actions"][:, None], axis=1)[:, 0]
    loss = jnp.mean(fk.losses.huber(batch["returns"][:, None], values[:, None]))
    return fk.Output(loss, out.updates, out.losses, metrics={"value": values.mean()})


class Learner(NamedTuple):
    """Everything that changes: `jax.lax.scan` carries it from step to step."""

    run: fk.TrainState[fk.Model]
    target: fk.Model  # an older copy of the network, which judges the next states
    carts: Any
    memory: dict[str, jax.Array]
    steps: jax.Array


def start(trainer, model, key):
    batch = {
        "states": jnp.zeros((BATCH, 4)),
        "actions": jnp.zeros(BATCH, "int32"),
        "returns": jnp.zeros(BATCH),
    }
    run = trainer.init(model, key, batch=batch)
    memory = {
        "states": jnp.zeros((MEMORY, 4)),
        "actions": jnp.zeros(MEMORY, "int32"),
        "after": jnp.zeros((MEMORY, 4)),
        "fell": jnp.zeros(MEMORY, "bool"),
    }
    carts = jax.vmap(reset)(jax.random.split(key, CARTS))
    return Learner(run, run.model, carts, memory, jnp.zeros((), "int32"))


def live_and_learn(trainer, learner, key):
    """One push of each cart, remembered; then one step of the trainer on remembered pushes."""
    run, target, carts, memory, steps = learner
    explore, choose, again, pick = jax.random.split(key, 4)
    epsilon = jnp.maximum(0.05, 1 - steps * CARTS / 20_000)
    best = run.model(carts[0]).argmax(-1)
    actions = jax.random.randint(choose, (CARTS,), 0, 2)
    actions = jnp.where(jax.random.uniform(explore, (CARTS,)) < epsilon, actions, best)
    moved, fell = jax.vmap(move)(carts, actions)
    rows = (steps * CARTS + jnp.arange(CARTS)) % MEMORY
    seen = {"states": carts[0], "actions": actions, "after": moved[0], "fell": fell}
    memory = {name: memory[name].at[rows].set(seen[name]) for name in memory}
    over = fell | (moved[1] >= LIMIT)
    new = jax.vmap(reset)(jax.random.split(again, CARTS))
    carts = jax.tree.map(
        lambda a, b: jnp.where(over.reshape(-1, *(1,) * (a.ndim - 1)), a, b), new, moved
    )

    rows = jax.random.randint(pick, (BATCH,), 0, jnp.minimum((steps + 1) * CARTS, MEMORY))
    past = {name: array[rows] for name, array in memory.items()}
    # the network chooses the next action, and the delayed copy judges the choice
    choice = run.model(past["after"]).argmax(-1)
    future = jnp.take_along_axis(target(past["after"]), choice[:, None], axis=1)[:, 0]
    returns = 1 + DISCOUNT * jnp.where(past["fell"], 0, future)
    batch = {"states": past["states"], "actions": past["actions"], "returns": returns}
    run, logs = trainer.step(run, batch)
    copy = (steps + 1) % 100 == 0
    target = jax.tree.map(lambda new, old: jnp.where(copy, new, old), run.model, target)
    return Learner(run, target, carts, memory, steps + 1), logs


@partial(jax.jit, static_argnums=(0, 3))
def learn(trainer, learner, key, steps):
    """The learner after some steps, and the mean value that it expects."""
    keys = jax.random.split(key, steps)
    learner, logs = jax.lax.scan(partial(live_and_learn, trainer), learner, keys)
    return learner, logs["value"].mean()


@partial(jax.jit, static_argnums=2)
def play(model, key, episodes=100):
    """The mean number of steps for which the best actions balance the pole."""

    def push(carry, _):
        carts, alive = carry
        carts, fell = jax.vmap(move)(carts, model(carts[0]).argmax(-1))
        return (carts, alive & ~fell), alive.sum()

    carts = jax.vmap(reset)(jax.random.split(key, episodes))
    _, alive = jax.lax.scan(push, (carts, jnp.ones(episodes, "bool")), length=LIMIT)
    return alive.sum() / episodes


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    short = parser.parse_args().short
    begin = time.perf_counter()
    cart = fk.Input((4,), name="cart")
    x = layers.Dense(64, activation="relu")(cart)
    x = layers.Dense(64, activation="relu")(x)
    model = fk.Model(cart, layers.Dense(2, name="value_of_push")(x))
    trainer = fk.Trainer(
        fk.optimizers.Adam(fk.optimizers.schedules.CosineDecay(2e-3, 30_000)), objective=bellman
    )
    learner = start(trainer, model, jax.random.key(0))
    best, best_model = -1.0, model
    for part in range(2 if short else 30):
        learner, value = learn(trainer, learner, jax.random.key(part), 200 if short else 1000)
        result = float(play(learner.run.model, jax.random.key(99)))
        print(f"{int(learner.steps):6d} steps  expected return {value:6.2f}  balanced {result:.0f}")
        if result > best:
            best, best_model = result, learner.run.model
        if result >= 475:
            break
    final = float(play(best_model, jax.random.key(7)))
    seconds = time.perf_counter() - begin
    print(f"balances the pole for {final:.0f} of {LIMIT} steps on average; {seconds:.0f} s")


if __name__ == "__main__":
    main()
