"""The pure functions of one batch, and the compiled ones of a chunk of batches."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax

from fkeras.engine import combine, constrain, partition, subkey
from fkeras.optimizers import transformation
from fkeras.training import objective, optimizer_state
from fkeras.training.state import TrainState


def train_step(
    trainer: Any, run: TrainState, batch: tuple, valid: Any = None
) -> tuple[TrainState, dict[str, jax.Array]]:
    """`(run, sums)`: one step on a batch, and the sums of its losses and metrics.

    The key of the step is a function of the run's key and the number of the step.

    Args:
        trainer: the trainer.
        run: the state before the step.
        batch: `(x, y)` or `(x, y, sample_weight)`.
        valid: which rows are real, or None for all.
    """
    x, y, weights = unpack(batch)
    heads = objective.heads(trainer, run.model, y)
    key = subkey(run.key, run.step)
    trainable, frozen = partition(run.model)

    def loss_fn(trainable: Any) -> tuple[jax.Array, tuple]:
        model = combine(trainable, frozen)
        out = model.apply(x, state=run.state, training=True, key=key)
        loss, sums = objective.measure(heads, out, y, weights, valid)
        return loss, (out.updates, sums)

    (_, (updates, sums)), grads = jax.value_and_grad(loss_fn, has_aux=True)(trainable)
    # while tracing, so it costs a step nothing
    opt_state = optimizer_state.follow(trainer.optimizer, run.opt_state, run.model)
    deltas, opt_state = transformation(trainer.optimizer).update(grads, opt_state, trainable)
    model = constrain(combine(optax.apply_updates(trainable, deltas), frozen))
    run = run.replace(
        model=model,
        state=run.state | updates,
        opt_state=opt_state,
        metrics=objective.merge(heads, run.metrics, sums),
        step=run.step + 1,
    )
    return run, sums


def train_logs(
    trainer: Any, run: TrainState, batch: tuple
) -> tuple[TrainState, dict[str, jax.Array]]:
    """`(run, logs)`: one step on a batch, and the logs of that batch."""
    new, sums = train_step(trainer, run, batch)
    return new, objective.results(objective.heads(trainer, run.model, unpack(batch)[1]), sums)


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


compiled_step = jax.jit(train_logs, static_argnums=0)

# What crosses the dispatch of the loops is a flat tuple of arrays; the structure is static. The
# number of steps is an array, so that chunks of any length are one program.


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=2)
def compiled_train(
    trainer: Any, structure: Any, leaves: tuple, chunk: Any, counts: jax.Array, steps: Any
) -> tuple[tuple, dict[str, jax.Array]]:
    """`(leaves, logs)` after the first `steps` batches of a chunk, or the only one."""

    def body(number: jax.Array, leaves: tuple) -> tuple:
        run = jax.tree.unflatten(structure, leaves)
        batch, valid = _batch(chunk, counts, number)
        run, _ = train_step(trainer, run, batch, valid)
        return tuple(jax.tree.leaves(run))

    leaves = _repeat(body, leaves, steps, counts)
    run = jax.tree.unflatten(structure, leaves)
    return leaves, objective.results(objective.heads(trainer, run.model), run.metrics)


@functools.partial(jax.jit, static_argnums=(0, 1))
def compiled_test(
    trainer: Any,
    structure: Any,
    leaves: tuple,
    carry: tuple,
    chunk: Any,
    counts: jax.Array,
    steps: Any,
) -> tuple[tuple, dict[str, jax.Array]]:
    """`((state, sums), logs)` after the first `steps` batches of a chunk of an evaluation."""
    model = jax.tree.unflatten(structure, leaves)

    def body(number: jax.Array, carry: tuple) -> tuple:
        state, sums = carry
        (x, y, weights), valid = _batch(chunk, counts, number)
        heads = objective.heads(trainer, model, y)
        out = model.apply(x, state=state)
        _, new = objective.measure(heads, out, y, weights, valid)
        return state | out.updates, objective.merge(heads, sums, new)

    carry = _repeat(body, carry, steps, counts)
    return carry, objective.results(objective.heads(trainer, model), carry[1])


@functools.partial(jax.jit, static_argnums=0)
def compiled_predict(structure: Any, leaves: tuple, x: Any) -> tuple[Any, Any]:
    """`(updates, value)` of one batch."""
    model, state = jax.tree.unflatten(structure, leaves)
    out = model.apply(x, state=state)
    return out.updates, out.value


def _repeat(body: Any, carry: Any, steps: jax.Array, counts: jax.Array) -> Any:
    zero = jnp.zeros((), steps.dtype)
    if counts.shape[0] == 1:
        return body(zero, carry)
    return jax.lax.fori_loop(zero, steps, body, carry)


def convolves(program: Any) -> bool:
    """Whether a traced program has a convolution, which XLA runs far slower in loops on CPUs.

    Example:
        >>> import jax, numpy as np
        >>> convolves(jax.make_jaxpr(lambda x: jax.numpy.convolve(x, x))(np.ones(3)))
        True
    """
    if isinstance(program, list | tuple):
        return any(convolves(part) for part in program)
    program = getattr(program, "jaxpr", program)
    return any(
        equation.primitive.name == "conv_general_dilated"
        or any(convolves(value) for value in equation.params.values())
        for equation in getattr(program, "eqns", ())
    )


def _batch(chunk: Any, counts: jax.Array, number: jax.Array) -> tuple[Any, jax.Array]:
    batch = jax.tree.map(lambda a: jax.lax.dynamic_index_in_dim(a, number, keepdims=False), chunk)
    size = jax.tree.leaves(chunk)[0].shape[1]
    return batch, jnp.arange(size, dtype="int32") < counts[number]
