"""Decides whether a short batch may be filled up to the size of the other batches.

One compiled program then serves all batches, and the padded rows count nothing. This is exact only if
no result of a step depends on the padded rows: a mean over the batch, as in BatchNormalization, an
activity regularizer or the Dice loss, depends on all rows. The program of the loss decides. A short
batch that may not be filled up is a call of its own, with another compiled program.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from fkeras.engine import (
    Layer,
    overwritten_weights,
    replace_weights,
    trainable_weights,
)
from fkeras.engine.rows.program import RowProgram
from fkeras.engine.rows.values import WHOLE, rows
from fkeras.engine.values.arrays import computed_dtype
from fkeras.training.records.state import TrainState
from fkeras.training.step import objective, outputs, step
from fkeras.transforms.depth import with_depth

if TYPE_CHECKING:
    from fkeras.training.trainer import Trainer


def fills_up(
    trainer: Trainer,
    run: TrainState,
    batch: object,
    count: int,
    training: bool,
    ordered: bool = True,
) -> bool:
    """Returns whether a batch of `count` rows, filled up, gives the results of its rows alone.

    Args:
        run: the run; only the shapes of its model and state are used.
        batch: a full batch, or its specs.
        training: whether the batch is one of a training; otherwise of an evaluation.
        ordered: whether the padded rows come after all real rows.

    Raises:
        ValueError: if the model cannot compute `count` rows, and padded rows would change results.

    Example:
        >>> import jax, numpy as np, fkeras as fk
        >>> trainer = fk.Trainer("sgd", "mse")
        >>> batch = np.ones((8, 3), "float32"), np.ones((8, 1), "float32"), None
        >>> model = fk.Sequential([fk.Input((3,)), fk.layers.Dense(1)])
        >>> fills_up(trainer, trainer.init(model, jax.random.key(0)), batch, 5, True)
        True
        >>> model = fk.Sequential([fk.Input((3,)), fk.layers.BatchNormalization(), fk.layers.Dense(1)])
        >>> run = trainer.init(model, jax.random.key(0))
        >>> fills_up(trainer, run, batch, 5, True), fills_up(trainer, run, batch, 5, False)
        (False, True)
    """
    # an objective receives no mask of the real rows
    if trainer.objective is not None:
        return False
    trainer = step.evaluation_form(trainer)
    tree = (run.model, run.state, batch)
    leaves, structure = jax.tree.flatten(tree)
    shapes = tuple((leaf.shape, np.dtype(leaf.dtype)) for leaf in leaves)
    config: Any = jax.config  # JAX declares its flags at run time
    flags = (config.jax_enable_x64, config.jax_threefry_partitionable)
    return _fills_up(trainer, structure, shapes, run.impl, count, training, ordered, flags)


# cached: every call of `fit` asks for the same batches
@functools.lru_cache(maxsize=256)
def _fills_up(
    trainer: Trainer,
    structure: Any,
    shapes: tuple,
    impl: str,
    count: int,
    training: bool,
    ordered: bool,
    flags: tuple,
) -> bool:
    model, state, batch = structure.unflatten(
        [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in shapes]
    )
    key = jax.eval_shape(lambda: jax.random.key(0, impl=impl)) if training else None

    def compute(
        weights: Mapping[str, jax.Array],
        model: Layer,
        state: Mapping[str, Any],
        key: jax.Array | None,
        batch: tuple,
        valid: jax.Array | None,
    ) -> Any:
        heads = outputs.heads(trainer, model, batch[1])
        model = replace_weights(model, weights)
        model = with_depth(model, trainer.depth, training=training)
        return objective.compute(trainer, heads, model, state, batch, key, training, valid)

    def gradients(weights: Mapping[str, jax.Array], *arguments: Any) -> Any:
        return jax.grad(lambda weights: compute(weights, *arguments)[0])(weights)

    weights = trainable_weights(model) | overwritten_weights(model)
    size = jax.tree.leaves(batch)[0].shape[0]
    arguments = (weights, model, state, key, batch)
    program = RowProgram(ordered)
    if not _is_equal(program, compute, arguments, size, count):
        return False
    # Equal losses for all weights have equal gradients, unless a rule of a user defines them.
    if training and program.custom_gradients:
        return _is_equal(RowProgram(ordered), gradients, arguments, size, count)
    return True


def predicts_by_row(model: Layer, state: Mapping[str, Any], x: object, size: int) -> bool:
    """Returns whether the outputs of a model for one row depend on no other row."""
    leaves, structure = jax.tree.flatten((model, state, x))
    rows_of_x = len(jax.tree.leaves(x))
    # the number of rows of the data does not matter
    ends = [0] * (len(leaves) - rows_of_x) + [1] * rows_of_x
    pairs = zip(leaves, ends, strict=True)
    shapes = tuple((leaf.shape[end:], computed_dtype(np.dtype(leaf.dtype))) for leaf, end in pairs)
    return _predicts_by_row(structure, shapes, rows_of_x, size)


@functools.lru_cache(maxsize=64)
def _predicts_by_row(structure: Any, shapes: tuple, rows_of_x: int, size: int) -> bool:
    first = len(shapes) - rows_of_x

    def traced(number: int) -> Any:
        specs = [
            jax.ShapeDtypeStruct(shape if index < first else (number, *shape), dtype)
            for index, (shape, dtype) in enumerate(shapes)
        ]
        return jax.make_jaxpr(step.predict, return_shape=True)(*structure.unflatten(specs))

    try:
        # the engine records models for any number of rows from 2 on
        (large, outputs), (small, _) = traced(4), traced(3)
    except Exception:
        large, outputs = traced(size)
        small = large
    values = [*[WHOLE] * first, *[rows(0)] * rows_of_x]
    results = RowProgram().results(large, small, values)
    count = len(jax.tree.leaves(outputs[0]))  # the updates of the state
    return all(result.is_whole for result in results[:count]) and all(
        result.is_rows and result.axis == 0 for result in results[count:]
    )


def _is_equal(
    program: RowProgram, function: Callable[..., Any], arguments: tuple, size: int, count: int
) -> bool:
    """Returns whether all results of a function equal those of the real rows.

    Args:
        arguments: specs; the rows are those of the last argument.
    """
    *others, batch = arguments

    def traced(number: int) -> Any:
        part = jax.tree.map(lambda a: jax.ShapeDtypeStruct((number, *a.shape[1:]), a.dtype), batch)
        return jax.make_jaxpr(function)(*others, part, jax.ShapeDtypeStruct((number,), bool))

    large, failure = traced(size), None
    try:
        small = traced(count)
    except Exception as error:
        small, failure = large, error
    values = [WHOLE] * len(jax.tree.leaves(others)) + [rows(0)] * len(jax.tree.leaves(batch))
    results = program.results(large, small, [*values, rows(0, fill=False)])
    equal = all(value.is_whole for value in results)
    if failure is not None and not equal:
        raise ValueError(
            f"Trainer: expected batches of {size} rows, received a last batch of {count} rows, which "
            f"this model cannot compute: {failure} Drop rows, or choose a batch size that divides "
            "their number."
        ) from failure
    return equal
