"""Predictions on arrays: the data of `Trainer.predict`, checked and cut into batches."""

from __future__ import annotations

import dataclasses
from typing import Any

from fkeras.training.data import array_feed, host_arrays
from fkeras.training.inputs import checks, sources
from fkeras.training.loop import batch_loops
from fkeras.training.records.state import TrainState
from fkeras.training.step import sharding


def predict(trainer: Any, run: TrainState, x: Any, size: int, steps: int | None) -> Any:
    """The model's outputs on arrays, as NumPy arrays in the outputs' structure.

    Args:
        trainer: the trainer, whose mesh decides where the rows are computed.
        run: the run; only its model and state are used.
        x: an array, or a list or dictionary of arrays.
        size: rows a batch.
        steps: how many batches at most, or None for all.
    """
    if steps is None and trainer.mesh is None and checks.is_single_batch(run.model, x, size):
        return batch_loops.predict_batch(run, x)
    rows = host_arrays.as_host(x, "predict: x")
    count = checks.check_lengths(rows)
    size = sharding.rows_for(trainer, min(size, count))
    sources.check_x(run.model, rows, size)
    checks.check_stateful(run.model, count, size, False)
    feed = array_feed.feed_of(host_arrays.in_memory(rows), size, steps)
    feed = dataclasses.replace(feed, size=size)
    return batch_loops.predict(run, feed, lambda batch: sharding.split_rows(trainer, batch))
