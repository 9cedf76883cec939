"""The pure functions of one batch, and the compiled ones of a row of batches."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fkeras.engine import (
    constrain,
    overwritten_weights,
    replace_weights,
    subkey,
    trainable_weights,
)
from fkeras.engine.values.arrays import as_array
from fkeras.optimizers import transformation
from fkeras.training.data import batch_parts
from fkeras.training.records.state import TrainState
from fkeras.training.step import objective, optimizer_state, outputs, sharding
from fkeras.training.step.objective_call import evaluation_key
from fkeras.transforms.remat import rematerialized


def train_step(
    trainer: Any, run: TrainState, batch: tuple, valid: Any = None
) -> tuple[TrainState, dict[str, jax.Array]]:
    """`(run, sums)`: one step on a batch, and the sums of its losses and metrics.

    The key of the step is a function of the run's key and the number of the step.

    Args:
        trainer: the trainer.
        run: the state before the step.
        batch: `(x, y)` or `(x, y, sample_weight)`; any tree of arrays for an objective.
        valid: which rows are real, or None for all.
    """
    batch = sharding.split_rows(trainer, batch, even=not batch_parts.sees_whole_batch(trainer))
    key = subkey(run.key, run.step)
    trainable, overwritten = trainable_weights(run.model), overwritten_weights(run.model)
    # while tracing, so it costs a step nothing
    opt_state = optimizer_state.follow(trainer.optimizer, run.opt_state, run.model)
    scale = getattr(trainer.optimizer, "scale_loss", None)
    heads = _heads(trainer, run.model, batch)

    def loss_fn(trainable: Any, overwritten: Any) -> tuple[jax.Array, tuple]:
        model = replace_weights(run.model, trainable | overwritten)
        model = rematerialized(model, trainer.remat)
        loss, updates, sums = objective.compute(
            trainer, heads, model, run.state, batch, key, True, valid
        )
        return loss if scale is None else scale(loss, opt_state), (updates, sums)

    derive = jax.value_and_grad(loss_fn, argnums=(0, 1), has_aux=True)
    (_, (updates, sums)), (grads, overwritten) = derive(trainable, overwritten)
    deltas, opt_state = transformation(trainer.optimizer).update(grads, opt_state, trainable)
    moved = optax.apply_updates(trainable, deltas)
    run = run.replace(
        model=constrain(replace_weights(run.model, moved | overwritten)),
        state=run.state | updates,
        opt_state=opt_state,
        metrics=objective.merge(heads, run.metrics, sums),
        step=run.step + 1,
    )
    return sharding.keep(trainer, run), sums


def is_finite(run: TrainState) -> jax.Array:
    """Whether weights, state, optimizer and loss of a run are finite, as one boolean."""
    held = jax.tree.leaves((run.model, run.state, run.opt_state, run.metrics["loss"]))
    floats = [a for a in held if jnp.issubdtype(a.dtype, jnp.inexact)]
    return functools.reduce(jnp.logical_and, [jnp.isfinite(a).all() for a in floats])


def guarded(run: TrainState, new: TrainState, number: Any = None) -> tuple[TrainState, jax.Array]:
    """`(run, fine)`: the new run, or where it is not finite the old one a step later.

    Args:
        run: the run before the step.
        new: the run after it.
        number: the number of the step, in a row of steps that halts at the first one that is not
            finite: the run then keeps its own number, and no later step matches it.
    """
    fine = is_finite(new)
    if number is not None:
        fine = fine & (run.step == number)
    kept = jax.tree.map(lambda a, b: jnp.where(fine, a, b), new, run)
    return (kept.replace(step=new.step) if number is None else kept), fine


def train_logs(
    trainer: Any, run: TrainState, batch: tuple
) -> tuple[TrainState, dict[str, jax.Array]]:
    """`(run, logs)`: one step on a batch, and the logs of that batch."""
    new, sums = train_step(trainer, run, batch)
    return new, objective.results(_heads(trainer, run.model, batch), sums)


def _heads(trainer: Any, model: Any, batch: Any) -> tuple:
    """The outputs with their losses and metrics, for a batch; none for an objective."""
    if trainer.objective is not None:
        return ()
    return outputs.heads(trainer, model, batch_parts.unpack(trainer, batch)[1])


def as_arrays(trainer: Any, batch: Any, call: str = "step") -> Any:
    """The batch with arrays that JAX takes, `(x, y, sample_weight)`; what is traced stays.

    For an objective, the batch keeps its own form.

    Args:
        trainer: the trainer.
        batch: `(x, y)` or `(x, y, sample_weight)`; any tree of arrays for an objective.
        call: the method of the trainer, for messages.

    Raises:
        TypeError: for anything but arrays of numbers.
        ValueError: for integers that do not fit the dtype that JAX computes in.
    """
    names = ("x", "y", "sample_weight")
    if trainer.objective is not None:
        return jax.tree.map(lambda leaf: as_array(leaf, f"Trainer.{call}: the batch"), batch)
    return tuple(
        jax.tree.map(lambda leaf, n=name: as_array(leaf, f"Trainer.{call}: {n}"), part)
        for name, part in zip(names, batch_parts.unpack(trainer, batch), strict=True)
    )


compiled_step = jax.jit(train_logs, static_argnums=0)

# What crosses the dispatch of the loops is a flat tuple of arrays; the structure is static. The
# number of steps is an array, so that rows of batches of any length are one program.


def _train(
    trainer: Any, structure: Any, mode: str, leaves: tuple, rows: Any, steps: Any
) -> tuple[tuple, dict[str, jax.Array], jax.Array]:
    """`(leaves, logs, fine)` after some batches.

    Args:
        trainer: the trainer.
        structure: the structure of the run.
        mode: "loop" for the first `steps` batches; "once" for batch number `steps` alone;
            "guarded" likewise, where a step whose result is not finite is left out; "halting" for
            the first batch alone, which is left out too if the run is not at step number `steps`.
        leaves: the arrays of the run.
        rows: what `batch_at` reads the batches from.
        steps: how many batches, or which.
    """
    fine = []
    steps, expected = (jnp.zeros_like(steps), steps) if mode == "halting" else (steps, None)

    def body(number: jax.Array, leaves: tuple) -> tuple:
        run = jax.tree.unflatten(structure, leaves)
        batch, valid = batch_at(rows, number)
        new, _ = train_step(trainer, run, batch, valid)
        if mode in ("guarded", "halting"):
            new, one = guarded(run, new, expected)
            fine.append(one)
        return tuple(jax.tree.leaves(new))

    leaves = _repeat(body, leaves, steps, mode)
    run = jax.tree.unflatten(structure, leaves)
    logs = objective.results(outputs.heads(trainer, run.model), run.metrics)
    return leaves, logs, fine[0] if fine else is_finite(run)


compiled_train = jax.jit(_train, static_argnums=(0, 1, 2))
donating_train = jax.jit(_train, static_argnums=(0, 1, 2), donate_argnums=3)


@functools.partial(jax.jit, static_argnums=(0, 1))
def compiled_logs(trainer: Any, structure: Any, leaves: tuple) -> dict[str, jax.Array]:
    """The logs of the sums that a run holds."""
    run = jax.tree.unflatten(structure, leaves)
    return objective.results(outputs.heads(trainer, run.model), run.metrics)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def compiled_test(
    trainer: Any, structure: Any, mode: str, leaves: tuple, carry: tuple, rows: Any, steps: Any
) -> tuple[tuple, dict[str, jax.Array]]:
    """`((state, sums), logs)` after some batches of an evaluation."""
    model = jax.tree.unflatten(structure, leaves)

    def body(number: jax.Array, carry: tuple) -> tuple:
        state, sums = carry
        batch, valid = batch_at(rows, number)
        batch = sharding.split_rows(trainer, batch, even=not batch_parts.sees_whole_batch(trainer))
        # a model's evaluation draws nothing, an objective's may
        key = None if trainer.objective is None else evaluation_key(sums["loss"]["count"])
        heads = _heads(trainer, model, batch)
        _, updates, new = objective.compute(trainer, heads, model, state, batch, key, False, valid)
        return state | updates, objective.merge(heads, sums, new)

    carry = _repeat(body, carry, steps, mode)
    return carry, objective.results(outputs.heads(trainer, model), carry[1])


@jax.jit
def compiled_predict(model: Any, state: Any, x: Any) -> tuple[Any, Any]:
    """`(updates, value)` of one batch."""
    # the model is an argument: a dispatch hashes its structure as a static argument more slowly
    out = model.apply(x, state=state)
    return out.updates, out.value


def _repeat(body: Any, carry: Any, steps: jax.Array, mode: str) -> Any:
    if mode != "loop":
        return body(steps, carry)
    return jax.lax.fori_loop(jnp.zeros((), steps.dtype), steps, body, carry)


# a memo of a pure function of hashable values: every call of `fit` asks the same
@functools.lru_cache(maxsize=64)
def call_convolves(function: Any, static: tuple, treedef: Any, specs: tuple) -> bool:
    """`convolves` for a call of a compiled function, whose trace JAX keeps for the call itself.

    Args:
        function: the compiled function.
        static: its static arguments, which come first.
        treedef: the structure of its other arguments.
        specs: the shape and dtype of each leaf of these.
    """
    leaves = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in specs]
    return convolves(function.trace(*static, *jax.tree.unflatten(treedef, leaves)).jaxpr)


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


def batch_at(rows: tuple, number: jax.Array | np.int32) -> tuple[Any, jax.Array]:
    """`(batch, valid)`: a batch, and which of its rows are real.

    Args:
        rows: `(arrays, counts)` for batches that are stacked, with the number of real rows of
            each; or `(arrays, order, size, place, total)` for arrays that are gathered from: the
            order of the rows, an array whose length is that of a batch, the first batch, and how
            many rows of the order are real.
        number: which batch.
    """
    if len(rows) == 2:
        arrays, counts = rows
        batch = jax.tree.map(
            lambda a: jax.lax.dynamic_index_in_dim(a, number, keepdims=False), arrays
        )
        size = jax.tree.leaves(arrays)[0].shape[1]
        return batch, jnp.arange(size, dtype="int32") < counts[number]
    arrays, order, places, first, total = rows
    start = (first + number) * places.shape[0]
    index = jax.lax.dynamic_slice_in_dim(order, start, places.shape[0])
    batch = jax.tree.map(lambda a: jnp.asarray(a).at[index].get(mode="promise_in_bounds"), arrays)
    return batch, start + places < total
