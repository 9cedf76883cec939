"""Splits a batch into inputs, targets and sample weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fkeras.engine import Layer, Network
from fkeras.training.records.annotations import Trainer

#: names of the entries of a batch
NAMES = ("x", "y", "sample_weight")


def by_position(model: Layer, batch: Any) -> Any:
    """Returns a named batch, `{"x": ..., "y": ..., "sample_weight": ...}`, as a tuple.

    Other batches are unchanged, and so is a dictionary for a model whose inputs have these names.
    """
    if not isinstance(batch, Mapping) or "x" not in batch or not batch.keys() <= set(NAMES):
        return batch
    is_inputs = isinstance(model, Network) and batch.keys() <= set(model.input_names)
    if is_inputs and not isinstance(batch["x"], Mapping):
        return batch
    values = [batch.get(name) for name in NAMES]
    return tuple(values[: 3 if "sample_weight" in batch else 2 if "y" in batch else 1])


def unpack(trainer: Trainer, batch: object) -> tuple[Any, Any, Any]:
    """Returns `(x, y, sample_weight)` of a batch; missing weights or targets become None.

    Raises:
        TypeError: for a batch without targets if the trainer has a loss.
    """
    needs_targets = has_loss(trainer.loss)
    if not needs_targets and not isinstance(batch, tuple | list):
        batch = (batch,)
    is_row = isinstance(batch, tuple | list)
    if not is_row or not 1 + needs_targets <= len(batch) <= 3:
        form = "(x, y)" if needs_targets else "x, (x, y)"
        raise TypeError(
            f"Trainer.step: expected a batch {form} or (x, y, sample_weight), received "
            f"{len(batch) if is_row else type(batch).__name__}. Write trainer.step(run, (x, y))."
        )
    x, y, weights = (*batch, None, None)[:3]
    if y is None:
        require_targets(trainer)
    return x, y, weights


def require_targets(trainer: Trainer) -> None:
    """Rejects data without targets for a trainer with a loss or metrics."""
    consumer = "a loss" if has_loss(trainer.loss) else "metrics"
    if consumer == "a loss" or trainer.metrics or trainer.weighted_metrics:
        raise TypeError(
            f"Trainer: missing targets for a trainer with {consumer}. Pass the "
            "targets: trainer.fit(run, x, y). Without targets, the layers of the model return "
            "the losses: fk.Output(value, losses=(loss,), metrics={'name': value})."
        )


def sees_whole_batch(trainer: Trainer) -> bool:
    """Returns whether the losses come from an objective or from layers.

    These losses cannot ignore filled-up rows, so such a trainer receives only real rows.
    """
    return trainer.objective is not None or not has_loss(trainer.loss)


def has_loss(loss: object) -> bool:
    """Returns whether a trainer has a loss; otherwise the layers of the model return the losses."""
    if isinstance(loss, Mapping) and "class_name" not in loss:
        return any(map(has_loss, loss.values()))
    return any(map(has_loss, loss)) if isinstance(loss, tuple) else loss is not None
