"""Trains whole epochs as one pure function of the run and the data."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fkeras.host.processes.alone import ALONE, Alone
from fkeras.host.processes.arrays import put
from fkeras.host.processes.facts import array_facts, run_facts
from fkeras.training.data import array_feed, batch_parts, host_arrays
from fkeras.training.inputs import checks
from fkeras.training.inputs.padding import fills_up
from fkeras.training.records.annotations import Trainer
from fkeras.training.records.state import TrainState
from fkeras.training.step import objective, optimizer_state, outputs, sharding, step
from fkeras.training.step.blocks import stacked, stacking_of, unstacked
from fkeras.training.step.masters import optimizer_of


def run(
    trainer: Trainer,
    run: TrainState,
    rows: tuple,
    epochs: int,
    batch_size: int,
    shuffle: bool,
    group: Alone = ALONE,
) -> tuple[TrainState, dict[str, jax.Array]]:
    """Returns `(run, logs)` after `epochs` epochs; see `Trainer.run`."""
    arrays = step.as_arrays(trainer, run.model, rows, "run")
    if group.count == 1:
        arrays = jax.tree.map(jnp.asarray, arrays)
    else:
        settings = {"epochs": epochs, "batch_size": batch_size, "shuffle": shuffle}
        facts = {"data": array_facts(arrays), "run": run_facts(run), "settings": settings}
        group.require_equal("arguments", facts)
        arrays = jax.tree.map(lambda a: put(a, sharding.whole_layout(trainer)), arrays)
        run = sharding.place(trainer, run)
    count = checks.count_rows(arrays)
    size = min(batch_size, count)
    steps = -(-count // size)
    if not batch_parts.sees_whole_batch(trainer):
        sharding.check_rows(trainer, size)
    example = jax.tree.map(lambda a: jax.ShapeDtypeStruct((size, *a.shape[1:]), a.dtype), arrays)
    # The scan needs one shape for all of its steps. If the rows that fill up the last batch would
    # change a result, the remaining rows make a smaller step after the scan.
    remainder = count % size
    if remainder and fills_up(trainer, run, example, remainder, True):
        remainder = 0
    offsets = jnp.arange(size, dtype="int32")
    # The same length of the permutation as in `fit`: both then visit the rows in the same order.
    order_length = array_feed.order_room(count, size)
    unshuffled = jnp.minimum(jnp.arange(order_length, dtype="int32"), jnp.int32(count - 1))
    empty = objective.empty(trainer, run.model, run.state, example)

    def one_step(run: TrainState, number: jax.Array) -> tuple[TrainState, None]:
        epoch_rows = (arrays, run.memory["order"], offsets, jnp.int32(0), jnp.int32(count))
        batch, valid = step.batch_at(epoch_rows, number)
        return step.train_step(trainer, run, batch, valid)[0], None

    def one_epoch(run: TrainState, _: Any) -> tuple[TrainState, dict[str, jax.Array]]:
        order = (
            host_arrays.order_of(count, order_length, run.key, run.step) if shuffle else unshuffled
        )
        run = run.replace(metrics=empty, memory={"order": order})
        run, _ = jax.lax.scan(one_step, run, jnp.arange(steps - bool(remainder), dtype="int32"))
        if remainder:
            last = jax.lax.slice(order, (count - remainder,), (count,))
            run, _ = step.train_step(trainer, run, host_arrays.take(arrays, last))
        logs = objective.results(outputs.heads(trainer, run.model), run.metrics)
        return run.replace(memory={}), logs

    # A scan needs a carry of constant structure, also after layers were frozen. `memory` transports the order of the rows
    # inside the scan; the callbacks' memory stays outside and is restored below.
    opt_state = optimizer_state.follow(optimizer_of(trainer), run.opt_state, run.model)
    run = run.replace(opt_state=opt_state)
    memory, stacking = run.memory, stacking_of(trainer, run)
    start = stacked(stacking, run.replace(memory={}, metrics=empty))
    run, logs = jax.lax.scan(one_epoch, start, None, length=epochs)
    # `scan` returns dictionaries sorted by key: restore the order of the logs.
    names = objective.log_names(outputs.heads(trainer, run.model), run.metrics)
    run = optimizer_state.finalized(optimizer_of(trainer), unstacked(stacking, run))
    if group.count > 1:
        group.wait((run, logs))
    return run.replace(memory=memory), {name: logs[name] for name in names}
