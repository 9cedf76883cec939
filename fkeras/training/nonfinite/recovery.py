"""Steps whose result is not finite: found after the call that they were in, and left out.

The call is made again from where it began, batch by batch, and a step that gives nan or infinity
changes nothing but the number of the step. So a step costs nothing more where all is well, and a
run never holds such numbers.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from fkeras.training.records.state import TrainState
from fkeras.training.step import step


class NonFiniteError(FloatingPointError):
    """A step of a training gave numbers that are not finite; its update was not applied.

    Attributes:
        run: the `TrainState` before that step; training can continue from it.
        batch: the batch of the step, `(x, y, sample_weight)`: `fk.find_nan(error.run,
            error.batch, trainer)` names the layer.

    Example:
        >>> import fkeras as fk
        >>> issubclass(fk.training.NonFiniteError, FloatingPointError)
        True
    """

    def __init__(self, message: str, run: Any = None, batch: Any = None):
        super().__init__(message)
        self.run, self.batch = run, batch


@dataclasses.dataclass(frozen=True)
class Again:
    """What came of the steps of a call, made one by one.

    Attributes:
        leaves: the run's arrays after all of them.
        logs: the logs.
        wrong: which steps were left out, by their number among them.
        first: the run's arrays before the first of these.
    """

    leaves: tuple
    logs: Any
    wrong: tuple[int, ...]
    first: tuple


def again(trainer: Any, structure: Any, leaves: tuple, batches: list) -> Again:
    """Steps one by one, without those whose results are not finite.

    Args:
        trainer: the trainer.
        structure: the structure of the run.
        leaves: the run's arrays before the first step.
        batches: for each step the rows of `step.batch_at` and the number of the batch in them.
    """
    wrong, first, logs = [], leaves, {}
    for number, (rows, place) in enumerate(batches):
        new, logs, fine = step.compiled_train(
            trainer, structure, "guarded", leaves, rows, np.int32(place)
        )
        if not bool(fine):
            first = first if wrong else leaves
            wrong.append(number)
        leaves = new
    return Again(leaves, logs, tuple(wrong), first)


def error(run: TrainState, batch: Any, epoch: int, number: int) -> NonFiniteError:
    """The error for batch `number` of an epoch."""
    size = len(jax.tree.leaves(batch)[0])
    return NonFiniteError(
        f"Trainer.fit, epoch {epoch + 1}, batch {number + 1}: expected finite numbers, received nan "
        f"or infinity in the loss or the gradients of its {size} rows. The update was not applied. "
        "`except fk.training.NonFiniteError as error: fk.find_nan(error.run, error.batch, trainer)` "
        'names the layer; Trainer(..., on_nonfinite="skip") leaves such steps out and continues. A '
        "training with checkpoint= is saved before this batch: the same call begins with it again.",
        run,
        batch,
    )


def batch_of(rows: tuple, number: int) -> Any:
    """The batch of a call, its real rows, on the host."""
    batch, valid = jax.device_get(step.batch_at(rows, np.int32(number)))
    return jax.tree.map(lambda array: array[valid], batch)
