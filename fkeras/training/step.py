"""The pure functions of one batch: a training step, an evaluation, a prediction."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax

from fkeras.engine import combine, constrain, partition, subkey
from fkeras.optimizers import transformation
from fkeras.training import objective
from fkeras.training.state import TrainState


def train_step(
    trainer: Any, run: TrainState, batch: tuple, valid: Any = None
) -> tuple[TrainState, dict[str, jax.Array]]:
    """`(run, sums)`: one step on a batch, and the sums of its losses and metrics.

    The key of the step is a function of the run's key and the number of the step.
    """
    x, y, weights = unpack(batch)
    heads = objective.heads(trainer, run.model)
    key = subkey(run.key, run.step)
    trainable, frozen = partition(run.model)

    def loss_fn(trainable: Any) -> tuple[jax.Array, tuple]:
        model = combine(trainable, frozen)
        out = model.apply(x, state=run.state, training=True, key=key)
        loss, sums = objective.measure(heads, out, y, weights, valid)
        return loss, (out.updates, sums)

    (_, (updates, sums)), grads = jax.value_and_grad(loss_fn, has_aux=True)(trainable)
    deltas, opt_state = transformation(trainer.optimizer).update(grads, run.opt_state, trainable)
    model = constrain(combine(optax.apply_updates(trainable, deltas), frozen))
    run = TrainState(
        model=model,
        state=run.state | updates,
        opt_state=opt_state,
        metrics=objective.merge(heads, run.metrics, sums),
        step=run.step + 1,
        key=run.key,
    )
    return run, sums


def unpack(batch: Any) -> tuple[Any, Any, Any]:
    """`(x, y, sample_weight)` of a batch that may lack the weights."""
    if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
        found = len(batch) if isinstance(batch, tuple | list) else type(batch).__name__
        raise TypeError(
            f"Trainer.step: expected a batch (x, y) or (x, y, sample_weight), received {found}. "
            "Write trainer.step(run, (x, y))."
        )
    x, y, *rest = batch
    return x, y, rest[0] if rest else None


# What crosses the dispatch is the carry and plain key data: a typed key is unflattened in Python.
@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=2)
def compiled_train(
    trainer: Any, impl: str, carry: tuple, key: Any, batch: tuple, valid: Any
) -> tuple:
    """One step of `fit`: the next carry."""
    run = TrainState(*carry, key=jax.random.wrap_key_data(key, impl=impl))
    run, _ = train_step(trainer, run, batch, valid)
    return run.model, run.state, run.opt_state, run.metrics, run.step


@functools.partial(jax.jit, static_argnums=0)
def compiled_test(
    trainer: Any, model: Any, state: Any, sums: Any, batch: tuple, valid: Any
) -> tuple[Any, Any]:
    """`(state, sums)` after one batch of an evaluation."""
    x, y, weights = unpack(batch)
    heads = objective.heads(trainer, model)
    out = model.apply(x, state=state)
    _, new = objective.measure(heads, out, y, weights, valid)
    return state | out.updates, objective.merge(heads, sums, new)


@jax.jit
def compiled_predict(model: Any, state: Any, x: Any) -> tuple[Any, Any]:
    """`(state, value)` of one batch."""
    out = model.apply(x, state=state)
    return state | out.updates, out.value


@functools.partial(jax.jit, static_argnums=0)
def compiled_results(trainer: Any, model: Any, sums: Any) -> dict[str, jax.Array]:
    """The logs of some sums."""
    return objective.results(objective.heads(trainer, model), sums)


@jax.jit
def copied(tree: Any) -> Any:
    """The tree in buffers of its own, which may be donated."""
    return jax.tree.map(jnp.copy, tree)
