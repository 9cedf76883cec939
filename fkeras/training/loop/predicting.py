"""Predicts on arrays and on sources: checks the data of `Trainer.predict`, and splits arrays into batches."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from fkeras.engine.strings.network import decoded_values
from fkeras.host.processes.alone import ALONE, Alone
from fkeras.training.data import array_feed, host_arrays, texts
from fkeras.training.data.array_feed import Feed
from fkeras.training.data.sample_tables import as_batches
from fkeras.training.data.stream_feed import Batches, is_batches
from fkeras.training.inputs import checks, sources
from fkeras.training.inputs.padding import predicts_by_row
from fkeras.training.loop import batch_loops
from fkeras.training.loop.agreement import compare_call
from fkeras.training.records.annotations import Trainer
from fkeras.training.records.state import TrainState
from fkeras.training.step import sharding, step


def predict(
    trainer: Trainer, run: TrainState, x: Any, size: int, steps: int | None, group: Alone = ALONE
) -> Any:
    """Returns the model's outputs on arrays or a source, as NumPy arrays in the structure of the outputs.

    Args:
        trainer: the trainer; its mesh decides which devices compute which rows.
        steps: number of batches of a source, largest number of batches of arrays, or None for all.
    """
    # A single batch needs no feed: preparing one costs more than the call of a small model.
    single = steps is None and trainer.mesh is None and checks.is_single_batch(run.model, x, size)
    if single:
        largest = rounded(len(x), size)
        fills = len(x) == largest or predicts_by_row(run.model, run.state, x, largest)
        return batch_loops.predict_batch(run, x, largest if fills else len(x))
    feed: Feed | Batches
    x = as_batches(x, size)
    if is_batches(x) and not _is_table(x):
        feed = sources.prediction_batches(trainer, run, x, steps, group)
    else:
        feed = _array_feed(trainer, run, x, size, steps)
    compare_call(group, trainer, run, {"data": feed})
    run = sharding.place(trainer, run) if group.count > 1 else run
    if trainer.mesh is None:
        value = batch_loops.predict(run, feed, lambda batch: batch)
    else:
        compute = functools.partial(step.compiled_sharded_predict, step.evaluation_form(trainer))
        value = batch_loops.predict(
            run, feed, lambda batch: sharding.split_rows(trainer, batch), compute, group
        )
    return decoded_values(run.model, value)


def rounded(count: int, size: int) -> int:
    """Returns the number of rows of a batch: a power of two for fewer rows than `size`.

    Predictions of many different numbers of rows then share few compiled programs.
    """
    return min(1 << (count - 1).bit_length(), size)


def _array_feed(trainer: Trainer, run: TrainState, x: Any, size: int, steps: int | None) -> Feed:
    rows = texts.as_host(run.model, x, "predict: x")
    count = checks.check_lengths(rows)
    rows = texts.mapped(run.model, rows)
    largest = sharding.rows_for(trainer, rounded(count, size))
    sources.check_x(run.model, rows, largest)
    checks.check_stateful(run.model, count, min(size, count), False)
    # `feed_of` limits the size to the number of rows, and the feed fills the last batch up.
    feed = array_feed.feed_of(host_arrays.in_memory(rows), size, steps)
    if count % largest and not predicts_by_row(run.model, run.state, rows, largest):
        return dataclasses.replace(feed, exact=True)
    return dataclasses.replace(feed, size=largest)


def _is_table(x: Any) -> bool:
    """Returns whether a list of tuples is one array: its tuples are rows of numbers or strings."""
    is_list = isinstance(x, list) and host_arrays.is_leaf(x)
    return is_list and not any(isinstance(entry, list) for entry in x[0])
