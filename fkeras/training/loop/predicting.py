"""Predicts on arrays: checks the data of `Trainer.predict` and splits them into batches."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from fkeras.training.data import array_feed, host_arrays
from fkeras.training.data.stream_feed import is_batches
from fkeras.training.inputs import checks, sources
from fkeras.training.loop import batch_loops
from fkeras.training.loop.agreement import compare_call
from fkeras.training.processes.alone import ALONE, Alone
from fkeras.training.records.state import TrainState
from fkeras.training.step import sharding, step


def predict(
    trainer: Any, run: TrainState, x: Any, size: int, steps: int | None, group: Alone = ALONE
) -> Any:
    """Returns the model's outputs on arrays, as NumPy arrays in the structure of the outputs.

    Args:
        trainer: the trainer; its mesh decides which devices compute which rows.
        run: the run; only its model and state are used.
        x: an array, or a list or dictionary of arrays.
        size: number of rows of a batch.
        steps: largest number of batches, or None for all.
        group: the processes that predict together.
    """
    # A single batch needs no feed: preparing one costs more than the call of a small model.
    if steps is None and trainer.mesh is None and checks.is_single_batch(run.model, x, size):
        return batch_loops.predict_batch(run, x)
    rows = _on_host(x)
    count = checks.check_lengths(rows)
    size = sharding.rows_for(trainer, min(size, count))
    sources.check_x(run.model, rows, size)
    checks.check_stateful(run.model, count, size, False)
    feed = array_feed.feed_of(host_arrays.in_memory(rows), size, steps)
    # `feed_of` limits the size to the number of rows; with a mesh the batch must stay a multiple
    # of the number of devices, and the feed fills the batch up.
    feed = dataclasses.replace(feed, size=size)
    compare_call(group, trainer, run, {"data": feed})
    run = sharding.place(trainer, run) if group.count > 1 else run
    if trainer.mesh is None:
        return batch_loops.predict(run, feed, lambda batch: batch)
    compute = functools.partial(step.compiled_sharded_predict, trainer)
    return batch_loops.predict(
        run, feed, lambda batch: sharding.split_rows(trainer, batch), compute, group
    )


def _on_host(x: Any) -> Any:
    try:
        return host_arrays.as_host(x, "predict: x")
    except TypeError:
        if not is_batches(x):
            raise
        # without the first error, whose remedy is that of an array
        raise TypeError(
            f"Trainer.predict: x: expected arrays, received a source of batches ({type(x).__name__}). "
            "Predict batch by batch: [trainer.predict(run, x) for x, *_ in batches]."
        ) from None
