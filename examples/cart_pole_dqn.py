"""Deep Q-learning: a network learns to balance a pole on a cart.

The environment is a JAX function, and 1,000 steps of acting and learning are one compiled program: a
`jax.lax.scan` carries the replay memory, the trained network and its target network. After 15,000 steps
the pole stays up to the end of the episode.
"""

import argparse
import time
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import fkeras as fk
from fkeras import layers

fk.utils.cache_programs()  # the second start compiles nothing

EPISODE_STEPS = 500  # an episode ends after this number of steps
CARTS, MEMORY, BATCH, DISCOUNT = 8, 100_000, 128, 0.99


# The environment is the cart pole of Barto, Sutton and Anderson, with the constants of OpenAI's Gym.


def reset(key):
    """Returns a cart near the middle: (position, velocity, angle, angular velocity), and step 0."""
    return jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05), jnp.zeros((), "int32")


def move(cart, action):
    """Returns `(cart, has_fallen)` after a push to the left (0) or to the right (1) for 0.02 s."""
    (x, velocity, angle, angular_velocity), steps = cart
    force = jnp.where(action == 1, 10.0, -10.0)
    sin, cos = jnp.sin(angle), jnp.cos(angle)
    # the masses are 1 (cart) and 0.1 (pole), together 1.1; half of the pole's length is 0.5
    force_per_mass = (force + 0.05 * angular_velocity**2 * sin) / 1.1
    angular_acceleration = (9.8 * sin - cos * force_per_mass) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
    acceleration = force_per_mass - 0.05 * angular_acceleration * cos / 1.1
    state = jnp.stack(
        [
            x + 0.02 * velocity,
            velocity + 0.02 * acceleration,
            angle + 0.02 * angular_velocity,
            angular_velocity + 0.02 * angular_acceleration,
        ]
    )
    has_fallen = (jnp.abs(state[0]) > 2.4) | (jnp.abs(state[2]) > 12 * jnp.pi / 180)
    return (state, steps + 1), has_fallen


def bellman(model, state, batch, key, training):
    """Huber loss between the predicted values of the chosen actions and the target returns."""
    out = model.apply(batch["states"], state=state, training=training, key=key)
    values = jnp.take_along_axis(out.value, batch["actions"][:, None], axis=1)[:, 0]
    loss = jnp.mean(fk.losses.huber(batch["returns"][:, None], values[:, None]))
    return fk.Output(loss, out.updates, out.losses, metrics={"value": values.mean()})


class Learner(NamedTuple):
    """The values that change in training, which `jax.lax.scan` carries from step to step."""

    run: fk.TrainState[fk.Model]
    target: fk.Model  # an older copy of the network, which estimates the value of next states
    carts: Any  # `(states, steps)` of all carts
    memory: dict[str, jax.Array]
    steps: jax.Array  # number of training steps so far


def start(trainer, model, key):
    """Returns a learner with new weights and an empty replay memory."""
    batch = {
        "states": jnp.zeros((BATCH, 4)),
        "actions": jnp.zeros(BATCH, "int32"),
        "returns": jnp.zeros(BATCH),
    }
    run = trainer.init(model, key, batch=batch)
    memory = {
        "states": jnp.zeros((MEMORY, 4)),
        "actions": jnp.zeros(MEMORY, "int32"),
        "next_states": jnp.zeros((MEMORY, 4)),
        "has_fallen": jnp.zeros(MEMORY, "bool"),
    }
    carts = jax.vmap(reset)(jax.random.split(key, CARTS))
    return Learner(run, run.model, carts, memory, jnp.zeros((), "int32"))


def act_and_learn(trainer, learner, key):
    """Pushes each cart, stores the transitions, and trains one step on a batch from the memory."""
    run, target, carts, memory, steps = learner
    explore_key, action_key, reset_key, batch_key = jax.random.split(key, 4)
    # random actions become less frequent, down to 5 %
    epsilon = jnp.maximum(0.05, 1 - steps * CARTS / 20_000)
    best_actions = run.model(carts[0]).argmax(-1)
    actions = jax.random.randint(action_key, (CARTS,), 0, 2)
    explores = jax.random.uniform(explore_key, (CARTS,)) < epsilon
    actions = jnp.where(explores, actions, best_actions)
    moved, has_fallen = jax.vmap(move)(carts, actions)
    rows = (steps * CARTS + jnp.arange(CARTS)) % MEMORY
    transitions = {
        "states": carts[0],
        "actions": actions,
        "next_states": moved[0],
        "has_fallen": has_fallen,
    }
    memory = {name: memory[name].at[rows].set(transitions[name]) for name in memory}
    is_over = has_fallen | (moved[1] >= EPISODE_STEPS)
    new_carts = jax.vmap(reset)(jax.random.split(reset_key, CARTS))
    carts = jax.tree.map(
        lambda new, old: jnp.where(is_over.reshape(-1, *(1,) * (new.ndim - 1)), new, old),
        new_carts,
        moved,
    )

    rows = jax.random.randint(batch_key, (BATCH,), 0, jnp.minimum((steps + 1) * CARTS, MEMORY))
    past = {name: array[rows] for name, array in memory.items()}
    # double Q-learning: the network chooses the next action, and the target network estimates its value
    next_actions = run.model(past["next_states"]).argmax(-1)
    next_values = jnp.take_along_axis(target(past["next_states"]), next_actions[:, None], axis=1)[
        :, 0
    ]
    returns = 1 + DISCOUNT * jnp.where(past["has_fallen"], 0, next_values)
    batch = {"states": past["states"], "actions": past["actions"], "returns": returns}
    run, logs = trainer.step(run, batch)
    update_target = (steps + 1) % 100 == 0
    target = jax.tree.map(lambda new, old: jnp.where(update_target, new, old), run.model, target)
    return Learner(run, target, carts, memory, steps + 1), logs


@partial(jax.jit, static_argnums=(0, 3))
def learn(trainer, learner, key, steps):
    """Returns the learner after a number of steps, and the mean predicted value of its actions."""
    keys = jax.random.split(key, steps)
    learner, logs = jax.lax.scan(partial(act_and_learn, trainer), learner, keys)
    return learner, logs["value"].mean()


@partial(jax.jit, static_argnums=2)
def play(model, key, episodes=100):
    """Returns the mean number of steps for which the predicted best actions balance the pole."""

    def push(carry, _):
        carts, is_balanced = carry
        carts, has_fallen = jax.vmap(move)(carts, model(carts[0]).argmax(-1))
        return (carts, is_balanced & ~has_fallen), is_balanced.sum()

    carts = jax.vmap(reset)(jax.random.split(key, episodes))
    _, counts = jax.lax.scan(push, (carts, jnp.ones(episodes, "bool")), length=EPISODE_STEPS)
    return counts.sum() / episodes


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
    best_result, best_model = -1.0, model
    for part in range(2 if short else 30):
        learner, value = learn(trainer, learner, jax.random.key(part), 200 if short else 1000)
        result = float(play(learner.run.model, jax.random.key(99)))
        print(f"{int(learner.steps):6d} steps  predicted value {value:6.2f}  balanced {result:.0f}")
        if result > best_result:
            best_result, best_model = result, learner.run.model
        if result >= 475:
            break
    final = float(play(best_model, jax.random.key(7)))
    seconds = time.perf_counter() - begin
    print(f"balances the pole for {final:.0f} of {EPISODE_STEPS} steps on average; {seconds:.0f} s")


if __name__ == "__main__":
    main()
