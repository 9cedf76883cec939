"""Pure functions of one training step, and compiled functions of several batches."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from fkeras.engine import (
    Layer,
    constrain,
    overwritten_weights,
    replace_weights,
    subkey,
    trainable_weights,
)
from fkeras.engine.strings.network import device_part
from fkeras.engine.values.argument_types import Arrays, Batch
from fkeras.engine.values.arrays import as_array
from fkeras.nn.cpu.forms import FORM
from fkeras.optimizers import Rowwise
from fkeras.optimizers.updates.extra import extra_arguments
from fkeras.training.data import batch_parts, host_arrays, texts
from fkeras.training.records.annotations import Trainer
from fkeras.training.records.state import TrainState
from fkeras.training.step import (
    masters,
    objective,
    optimizer_state,
    outputs,
    sharding,
    transformations,
)
from fkeras.training.step.changes import changed_weights, joined, parted
from fkeras.training.step.compiled import compiled
from fkeras.training.step.form import StepForm
from fkeras.training.step.objective_call import evaluation_key
from fkeras.training.step.output_layouts import with_output_layouts
from fkeras.training.step.touched import View, view_of
from fkeras.transforms.depth import with_depth
from fkeras.transforms.splitting import Cut, front_of


def train_step(
    trainer: Trainer, run: TrainState, batch: tuple, valid: jax.Array | None = None
) -> tuple[TrainState, dict[str, jax.Array]]:
    """Returns `(run, sums)` after one step: the new run, and the sums of the batch.

    The key of the step is a function of the run's key and the number of the step.

    Args:
        batch: `(x, y)` or `(x, y, sample_weight)`; any tree of arrays for an objective.
        valid: mask of the real rows, or None if all are real.
    """
    view = _view(trainer, run, batch, valid)
    new, sums, _ = _stepped(trainer, view, batch, valid)
    return _whole(trainer, view, new), sums


def guarded_step(
    trainer: Trainer,
    run: TrainState,
    batch: tuple,
    valid: jax.Array | None = None,
    number: jax.Array | None = None,
) -> tuple[TrainState, jax.Array]:
    """Returns `(run, fine)` after one step, as `guarded` with the memory of one run and the gradients.

    The new values are computed twice: for the sums of `is_finite`, which need no memory, and in a
    conditional, which writes them into the memory of the old values.

    Args:
        number: as of `guarded`.
    """
    view = _view(trainer, run, batch, valid)
    run = view.run
    new, _, update = _stepped(trainer, view, batch, valid)
    finite = is_finite(new, trainer.mesh)
    if number is not None:
        finite = finite & (run.step == number)
    old = (changed_weights(run.model), run.opt_state)
    weights, opt_state = jax.lax.cond(finite, update, lambda: old)
    state, metrics, count = jax.tree.map(
        lambda a, b: jnp.where(finite, a, b),
        (new.state, new.metrics, new.step),
        (run.state, run.metrics, run.step),
    )
    model = replace_weights(run.model, weights)
    new = new.replace(
        model=model,
        state=state,
        opt_state=opt_state,
        metrics=metrics,
        step=new.step if number is None else count,
    )
    return _whole(trainer, view, new), finite


def _view(trainer: Trainer, run: TrainState, batch: tuple, valid: jax.Array | None) -> View:
    """Returns the part of a run that a step reads and changes."""
    if not isinstance(trainer.optimizer, Rowwise):
        return View(run)
    optimizer = masters.optimizer_of(trainer)
    run = run.replace(opt_state=optimizer_state.follow(optimizer, run.opt_state, run.model))
    # loops and recomputation would hide the ids
    plain = dataclasses.replace(trainer, depth="unroll", remat=None)
    compute = _computation(plain, run, batch, valid)
    return view_of(optimizer, run, lambda model: compute(model)[0])


def _whole(trainer: Trainer, view: View, new: TrainState) -> TrainState:
    return StepForm(trainer).result(view.written(new)) if view.ids else new


def _computation(
    trainer: Trainer, run: TrainState, batch: tuple, valid: jax.Array | None
) -> Callable[[Layer], tuple[jax.Array, dict, dict]]:
    """Returns `(model) -> (loss, updates, sums)` for the next step of a run."""
    form, key = StepForm(trainer), subkey(run.key, run.step)
    batch = form.batch(batch)
    heads = heads_of(trainer, run.model, batch)

    def compute(model: Layer) -> tuple[jax.Array, dict, dict]:
        model = form.model(model, batch)
        return objective.compute(trainer, heads, model, run.state, batch, key, True, valid)

    return compute


def _stepped(
    trainer: Trainer, view: View, batch: tuple, valid: jax.Array | None
) -> tuple[TrainState, dict[str, jax.Array], Callable[[], tuple[Any, Any]]]:
    """Returns `(run, sums, update)`; `update` computes `(changed weights, optimizer state)` again."""
    run = view.run
    compute = _computation(trainer, run, batch, valid)
    trainable, overwritten = trainable_weights(run.model), overwritten_weights(run.model)
    # Runs while JAX traces the step, so a compiled step does not pay for it.
    optimizer = masters.optimizer_of(trainer)
    opt_state = optimizer_state.follow(optimizer, run.opt_state, run.model)
    scale = getattr(optimizer, "scale_loss", None)

    def loss_fn(
        trainable: dict[str, jax.Array], overwritten: dict[str, jax.Array]
    ) -> tuple[jax.Array, tuple]:
        model = view.mapped(replace_weights(run.model, trainable | overwritten))
        loss, updates, sums = compute(model)
        return loss if scale is None else scale(loss, opt_state), (loss, updates, sums)

    # Overwritten weights take their gradient as the new value: float8 layers return their new
    # scales from the backward pass in this way. These weights never reach the optimizer.
    derive = jax.value_and_grad(loss_fn, argnums=(0, 1), has_aux=True)
    (_, (loss, updates, sums)), (grads, new_overwritten) = derive(trainable, overwritten)
    transformation = transformations.bound(optimizer, run.model)
    extra = extra_arguments(lambda weights: loss_fn(weights, overwritten)[1][0], loss, grads)

    def updated() -> TrainState:
        deltas, new_opt_state = transformation.update(grads, opt_state, trainable, **extra)
        new_weights = masters.moved(trainable, deltas, new_opt_state)
        model = constrain(replace_weights(run.model, new_weights | new_overwritten))
        model, new_opt_state = masters.rounded(model, trainable, new_opt_state)
        return StepForm(trainer).result(
            run.replace(
                model=model,
                state=run.state | updates,
                opt_state=new_opt_state,
                metrics=objective.merge(heads_of(trainer, run.model, batch), run.metrics, sums),
                step=run.step + 1,
            )
        )

    def update() -> tuple[Any, Any]:
        new = updated()
        return changed_weights(new.model), new.opt_state

    return updated(), sums, update


def is_finite(run: TrainState, mesh: Mesh | None = None) -> jax.Array:
    """Returns whether the changed weights, state, optimizer and loss of a run are finite, as one boolean."""
    weights = jax.tree.leaves(changed_weights(run.model))
    # Scalars of an optimizer may be infinite, such as the best loss before the first step.
    slots = [_without_infinity(leaf) for leaf in jax.tree.leaves(run.opt_state)]
    # The sums of other metrics may be infinite in a good run; the loss is summed, so a NaN stays.
    others = jax.tree.leaves((run.state, run.metrics["loss"]))
    # One reduction for several arrays of a shape: each reduction compiles to two or three kernels. On a
    # mesh, arrays of one shape may have different layouts.
    groups: dict[Any, tuple[list, list]] = {}
    for number, leaf in enumerate((*weights, *slots, *others)):
        if jnp.issubdtype(leaf.dtype, jnp.inexact):
            shared = (leaf.shape, leaf.dtype) if mesh is None else number
            members = groups.setdefault(shared, ([], []))
            members[number >= len(weights)].append(leaf)
    # NaN and infinity times 0 are NaN; XLA fuses the product and the sum into the reduction
    zeros = [
        jnp.sum(functools.reduce(jnp.add, [a * jnp.zeros((), a.dtype) for a in part]))
        for members in groups.values()
        for part in _parts(*members)
    ]
    return functools.reduce(jnp.logical_and, [jnp.isfinite(zero) for zero in zeros])


# number of weights in one reduction: XLA stores new values that more than one reduction needs, or a
# large reduction
_TOGETHER = 4


def _parts(weights: list, others: list) -> list[list]:
    """Returns arrays of one shape in parts: some weights, and the slots of the optimizer for them."""
    count = len(weights)
    if not count:
        return [others]
    starts = range(0, count, _TOGETHER)
    # each kind of slot has the order of the weights
    return [
        weights[start : start + _TOGETHER]
        + [a for i, a in enumerate(others) if start <= i % count < start + _TOGETHER]
        for start in starts
    ]


def _without_infinity(leaf: jax.Array) -> jax.Array:
    if leaf.shape or not jnp.issubdtype(leaf.dtype, jnp.inexact):
        return leaf
    return jnp.where(jnp.isinf(leaf), jnp.zeros_like(leaf), leaf)


def guarded(
    run: TrainState, new: TrainState, number: jax.Array | None = None, mesh: Mesh | None = None
) -> tuple[TrainState, jax.Array]:
    """Returns `(run, fine)`: the new run if it is finite, else the old run.

    Without `number`, the step number of the old run increases, and the training continues. With
    `number`, the step number stays, so that all later steps of the sequence are left out, too.
    """
    finite = is_finite(new, mesh)
    if number is not None:
        finite = finite & (run.step == number)
    # A select, not `lax.cond`: XLA fuses it into the update.
    guarded_run = jax.tree.map(lambda a, b: jnp.where(finite, a, b), new, run)
    return (guarded_run.replace(step=new.step) if number is None else guarded_run), finite


def train_logs(
    trainer: Trainer, run: TrainState, batch: tuple
) -> tuple[TrainState, dict[str, jax.Array]]:
    """Returns `(run, logs)` after one step: the new run, and the logs of the batch."""
    if not batch_parts.sees_whole_batch(trainer):
        sharding.check_rows(trainer, jax.tree.leaves(batch)[0].shape[0])
    new, sums = train_step(trainer, run, batch)
    return new, objective.results(heads_of(trainer, run.model, batch), sums)


def heads_of(trainer: Trainer, model: Layer, batch: Batch) -> tuple:
    """Returns the outputs with their losses and metrics for a batch; `()` for an objective."""
    if trainer.objective is not None:
        return ()
    return outputs.heads(trainer, model, batch_parts.unpack(trainer, batch)[1])


def as_arrays(trainer: Trainer, model: Layer, batch: object, call: str = "step") -> Any:
    """Returns the batch `(x, y, sample_weight)` with arrays that JAX accepts; tracers stay.

    For an objective, the batch keeps its structure. Strings become the numbers of the device part.

    Args:
        batch: `(x, y)` or `(x, y, sample_weight)`; any tree of arrays for an objective.

    Raises:
        TypeError: for values other than arrays of numbers.
        ValueError: for integers that overflow JAX's dtype.
    """

    def read(tree: object, name: str) -> Any:
        what = f"Trainer.{call}: {name}"
        return jax.tree.map(
            lambda leaf: _own(as_array(host_arrays.listed(leaf, what), what)),
            tree,
            is_leaf=host_arrays.is_leaf,
        )

    if trainer.objective is not None:
        return read(batch, "the batch")
    x, *others = batch_parts.unpack(trainer, batch_parts.by_position(model, batch))
    texts.check_labels(others[0], f"Trainer.{call}: y")
    if texts.takes_strings(model):
        x = texts.mapped(model, texts.as_host(model, x, f"Trainer.{call}: x"))
    return tuple(map(read, (x, *others), ("x", "y", "sample_weight")))


def _own(array: jax.Array | np.ndarray) -> Any:
    # The computation may read the memory of a NumPy array after the call has returned, when the
    # caller may have written the next batch there.
    return np.array(array) if isinstance(array, np.ndarray) else array


# The trainer is a static argument, so a trainer that differs in any number compiles another program.
# Cached: every call of a compiled function asks for the same form.
@functools.lru_cache(maxsize=64)
def training_form(trainer: Trainer) -> Trainer:
    """Returns the trainer for compiled steps: without the numbers that the optimizer's state holds."""
    canonical = getattr(trainer.optimizer, "_canonical", None)  # optax has none
    if canonical is None:
        return trainer
    return dataclasses.replace(
        trainer, optimizer=canonical(), on_nonfinite="raise", cache_frozen=False
    )


@functools.lru_cache(maxsize=64)
def evaluation_form(trainer: Trainer) -> Trainer:
    """Returns the trainer for compiled evaluations, which no optimizer affects."""
    return dataclasses.replace(
        trainer, optimizer="sgd", master=None, on_nonfinite="raise", cache_frozen=False
    )


compiled_step = compiled(train_logs, static_argnums=0)
donating_step = compiled(train_logs, static_argnums=0, donate_argnums=1)

# The compiled functions of the loops take a flat tuple of arrays: flattening a `TrainState` at
# every dispatch costs more than a small step, so the structure is a static argument. The number of
# steps is an array, so that one program serves any number of batches per call.


def _train(
    trainer: Trainer,
    structure: Any,
    mode: str | int,
    leaves: tuple,
    fixed: tuple,
    rows: tuple,
    steps: jax.Array,
) -> tuple[tuple, dict[str, jax.Array], jax.Array]:
    """Returns `(leaves, logs, fine)` after some batches.

    Args:
        leaves: the arrays of the run that a step changes, as `parted` returns them.
        fixed: the other arrays, such as frozen weights.
        mode: "loop" trains on the first `steps` batches, and a number on as many, whatever `steps`;
            "once" on batch number `steps`;
            "guarded" on batch number `steps`, and leaves out the step if its result is not
            finite; "halting" on the first batch, and leaves out the step if its result is not
            finite or the run is not at step number `steps`.
        rows: the data, in the form that `batch_at` reads.
        steps: the number of batches, the index of a batch, or the number of a step, by `mode`.
    """
    fine = []
    steps, expected = (jnp.zeros_like(steps), steps) if mode == "halting" else (steps, None)

    def body(number: jax.Array, leaves: tuple) -> tuple:
        run = joined(structure, leaves, fixed)
        batch, valid = batch_at(rows, number)
        if mode in ("guarded", "halting"):
            new, one = guarded_step(trainer, run, batch, valid, expected)
            fine.append(one)
        else:
            new, _ = train_step(trainer, run, batch, valid)
        return parted(structure, jax.tree.leaves(new))[0]

    leaves = _repeat(body, leaves, steps, mode)
    run = joined(structure, leaves, fixed)
    logs = objective.results(outputs.heads(trainer, run.model), run.metrics)
    logs, fine = sharding.whole(trainer, (logs, fine[0] if fine else is_finite(run, trainer.mesh)))
    return leaves, logs, fine


compiled_train = compiled(_train, static_argnums=(0, 1, 2))
donating_train = compiled(_train, static_argnums=(0, 1, 2), donate_argnums=3)


@functools.partial(jax.jit, static_argnums=(0, 1))
def compiled_logs(
    trainer: Trainer, structure: Any, leaves: tuple, fixed: tuple
) -> dict[str, jax.Array]:
    """Returns the logs of the sums in a run."""
    run = joined(structure, leaves, fixed)
    return sharding.whole(
        trainer, objective.results(outputs.heads(trainer, run.model), run.metrics)
    )


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def compiled_test(
    trainer: Trainer,
    structure: Any,
    mode: str,
    leaves: tuple,
    carry: tuple,
    rows: tuple,
    steps: jax.Array,
) -> tuple[tuple, dict[str, jax.Array]]:
    """Returns `((state, sums), logs)` after some batches of an evaluation."""
    model = jax.tree.unflatten(structure, leaves)
    form = StepForm(trainer, training=False)
    computed = form.model(model, rows[0])

    def body(number: jax.Array, carry: tuple) -> tuple:
        state, sums = carry
        batch, valid = batch_at(rows, number)
        batch = form.batch(batch)
        # The evaluation of a model draws no samples; an objective may (a generative model).
        key = None if trainer.objective is None else evaluation_key(sums["loss"]["count"])
        heads = heads_of(trainer, model, batch)
        _, updates, new = objective.compute(
            trainer, heads, computed, state, batch, key, False, valid
        )
        return state | updates, objective.merge(heads, sums, new)

    carry = _repeat(body, carry, steps, mode)
    logs = objective.results(outputs.heads(trainer, model), carry[1])
    return carry, sharding.whole(trainer, logs)


def predict(model: Layer, state: Mapping[str, Any], x: Arrays) -> tuple[Any, Any]:
    """Returns `(updates, value)` of one batch."""
    out = device_part(model).apply(x, state=state)
    return out.updates, out.value


# The model is a traced argument: hashing its structure as a static argument is slower.
compiled_predict = jax.jit(predict)


@functools.partial(jax.jit, static_argnums=0)
def compiled_sharded_predict(
    trainer: Trainer, model: Layer, state: Mapping[str, Any], x: Arrays
) -> tuple[Any, Any]:
    """Returns `(updates, value)` of one batch, with activations laid out on the trainer's mesh."""
    model = device_part(model)
    out = with_output_layouts(trainer, model, model).apply(x, state=state)
    return out.updates, sharding.whole(trainer, out.value)


@functools.partial(jax.jit, static_argnums=(0, 1))
def compiled_features(
    trainer: Trainer, cut: Cut, model: Layer, state: Mapping[str, Any], batch: tuple
) -> tuple[Any, Any]:
    """Returns `({}, (values, masks))`: the features of one batch, as `Features` holds them."""
    x, _, weights = batch_parts.unpack(trainer, batch)
    x = objective.without_removed(heads_of(trainer, model, batch), x, weights)
    model = outputs.require_network(device_part(model))
    front = with_depth(front_of(model, cut), trainer.depth, training=False)
    out = with_output_layouts(trainer, front, model).apply(x, state=state)
    return {}, sharding.whole(trainer, (out.value, out.mask))


def _repeat(
    body: Callable[[jax.Array, tuple], tuple], carry: tuple, steps: jax.Array, mode: str | int
) -> Any:
    if isinstance(mode, int):
        return jax.lax.fori_loop(np.int32(0), np.int32(mode), body, carry)
    if mode != "loop":
        return body(steps, carry)
    # With a traced bound, `fori_loop` becomes a while loop without reverse-mode derivatives:
    # the gradients are computed inside of the body.
    return jax.lax.fori_loop(jnp.zeros((), steps.dtype), steps, body, carry)


# Cached: every call of `fit` asks for the same functions and specs.
@functools.lru_cache(maxsize=64)
def call_convolves(function: jax.stages.Wrapped, static: tuple, treedef: Any, specs: tuple) -> bool:
    """Returns `convolves` of a call; JAX caches the trace, and the call itself uses it again."""
    leaves = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in specs]
    return convolves(function.trace(*static, *jax.tree.unflatten(treedef, leaves)).jaxpr)


def convolves(program: object, forms: bool = False) -> bool:
    """Returns whether a jaxpr has a convolution that XLA runs far slower in loops on CPUs.

    The convolutions of `fkeras.nn` are as fast in loops. Others are those of users and of modules of
    other libraries.

    Args:
        forms: whether the convolutions of `fkeras.nn` count, too.
    """
    if isinstance(program, list | tuple):
        return any(convolves(part, forms) for part in program)
    program = getattr(program, "jaxpr", program)
    return any(
        equation.primitive.name == "conv_general_dilated"
        or any(convolves(value, forms) for value in equation.params.values())
        for equation in getattr(program, "eqns", ())
        if forms or equation.primitive is not FORM
    )


def _filled(array: jax.Array, valid: jax.Array) -> jax.Array:
    """Returns an array with copies of its first real row in the place of rows that are not real."""
    # as in the batches of one process: BatchNormalization then computes the same statistics
    mask = valid.reshape(-1, *[1] * (array.ndim - 1))
    return jnp.where(mask, array, array[jnp.argmax(valid)])


def batch_at(rows: tuple[Any, ...], number: jax.Array | np.int32) -> tuple[Any, jax.Array | None]:
    """Returns `(batch, valid)`: a batch, and the mask of its real rows.

    The mask is None for a batch whose arrays have different numbers of rows: all rows are real.

    Args:
        rows: `(arrays, counts)`: stacked batches, and the number, or the mask, of the real rows of
            each batch; `(arrays, masks, places)`: the same with masks, for a batch of the real rows
            alone, whose number is the length of `places`; or `(arrays, order, places, first, total)`
            to gather rows: all rows, their order, an `arange` of the length of a batch, the index of
            the first batch of the call, and the number of real rows in the order.
    """
    if len(rows) == 5:
        arrays, order, places, first, total = rows
        # `places` carries the batch size as a shape, the only form of a static value in a pytree.
        start = (first + number) * places.shape[0]
        index = jax.lax.dynamic_slice_in_dim(order, start, places.shape[0])
        # The order holds indices below the number of rows, so XLA may omit the bounds check.
        batch = jax.tree.map(
            lambda a: jnp.asarray(a).at[index].get(mode="promise_in_bounds"), arrays
        )
        return batch, start + places < total
    arrays, counts, *alone = rows
    batch = jax.tree.map(lambda a: jax.lax.dynamic_index_in_dim(a, number, keepdims=False), arrays)
    if counts.ndim == 1:
        size = jax.tree.leaves(batch)[0].shape[0]
        valid = jnp.arange(size, dtype="int32") < counts[number]
        return batch, valid if host_arrays.is_even(batch) else None
    valid = jax.lax.dynamic_index_in_dim(counts, number, keepdims=False)
    if not alone:
        return jax.tree.map(lambda a: _filled(a, valid), batch), valid
    (index,) = jnp.nonzero(valid, size=alone[0].shape[0])
    return jax.tree.map(lambda a: a[index], batch), valid[index]
