"""Finds and leaves out the steps of a device call whose results are not finite.

The call is repeated from its beginning, batch by batch; a step that returns NaN or infinity only
increases the step number. Steps therefore cost nothing extra while all values are finite, and a
run never holds NaN.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from fkeras.host.processes.alone import ALONE, Alone
from fkeras.host.processes.gathering import gathered
from fkeras.training.records.annotations import Trainer
from fkeras.training.records.state import TrainState
from fkeras.training.step import step


class NonFiniteError(FloatingPointError):
    """Exception raised when a training step returns NaN or infinity; the update was not applied.

    Attributes:
        run: the `TrainState` before the step; training can continue from this run.
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
    """Result of repeating the steps of a call one by one.

    Attributes:
        leaves: the run's arrays after all steps.
        logs: the logs.
        wrong: indices of the steps that were left out.
        first: the run's arrays before the first of these steps.
    """

    leaves: tuple
    logs: Any
    wrong: tuple[int, ...]
    first: tuple


def again(
    trainer: Trainer,
    structure: Any,
    leaves: tuple,
    fixed: tuple,
    batches: list,
    group: Alone = ALONE,
) -> Again:
    """Repeats steps one by one, and leaves out those whose results are not finite.

    Args:
        leaves: the run's arrays before the first step that a step changes.
        fixed: the other arrays of the run.
        batches: for each step, the rows for `step.batch_at` and the index of the batch in them.
    """
    # Steps can be repeated because they are pure. A step that is left out still increases the step
    # number, so all later steps draw the same keys as before.
    failed, leaves_before, logs = [], leaves, {}
    for number, (rows, place) in enumerate(batches):
        new_leaves, logs, finite = step.compiled_train.by_default(
            step.training_form(trainer), structure, "guarded", leaves, fixed, rows, np.int32(place)
        )
        group.wait(finite)
        if not bool(finite):
            leaves_before = leaves_before if failed else leaves
            failed.append(number)
        leaves = new_leaves
    return Again(leaves, logs, tuple(failed), leaves_before)


def error(run: TrainState, batch: object, epoch: int, number: int) -> NonFiniteError:
    """Returns the error for batch `number` of an epoch."""
    size = len(jax.tree.leaves(batch)[0])
    return NonFiniteError(
        f"Trainer.fit, epoch {epoch + 1}, batch {number + 1}: expected finite numbers, received "
        f"nan or infinity in the loss or the gradients of its {size} rows. The update was not "
        "applied. `except fk.training.NonFiniteError as error: fk.find_nan(error.run, error.batch, "
        "trainer)` "
        'names the layer; Trainer(..., on_nonfinite="skip") skips these steps and continues. With '
        "checkpoint=, the run before this batch is saved, and the same call resumes with it.",
        run,
        batch,
    )


def batch_of(rows: tuple, number: int, group: Alone = ALONE) -> Any:
    """Returns a batch of a call on the host, without filled-up rows; of all processes of a group."""
    batch, valid = jax.device_get(gathered(step.batch_at(rows, np.int32(number)), group))
    return batch if valid is None else jax.tree.map(lambda array: array[valid], batch)
