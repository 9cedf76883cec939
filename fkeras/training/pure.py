"""Whole epochs as one pure function of the run and the data."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fkeras.training import checks, data, feeds, objective, step
from fkeras.training.state import TrainState


def run(
    trainer: Any, run: TrainState, rows: tuple, epochs: int, batch_size: int, shuffle: bool
) -> tuple[TrainState, dict[str, jax.Array]]:
    """`(run, logs)` after `epochs` epochs; see `Trainer.run`."""
    checks.check_size("epochs", epochs)
    arrays = jax.tree.map(jnp.asarray, step.unpack(rows))
    count = checks.check_lengths(*arrays)
    size = min(checks.check_size("batch_size", batch_size), count)
    steps = -(-count // size)
    places = jnp.arange(size, dtype="int32")
    room = feeds.order_room(count, size)
    by_number = jnp.arange(room, dtype="int32") % jnp.int32(count)
    empty = objective.empty(trainer, run.model)

    def one_step(run: TrainState, number: jax.Array) -> tuple[TrainState, None]:
        cut = (arrays, run.memory["order"], places, jnp.int32(0), jnp.int32(count))
        batch, valid = step.batch_at(cut, number)
        return step.train_step(trainer, run, batch, valid)[0], None

    def one_epoch(run: TrainState, _: None) -> tuple[TrainState, dict[str, jax.Array]]:
        order = data.order_of(count, room, run.key, run.step) if shuffle else by_number
        run = run.replace(metrics=empty, memory={"order": order})
        run, _ = jax.lax.scan(one_step, run, jnp.arange(steps, dtype="int32"))
        logs = objective.results(objective.heads(trainer, run.model), run.metrics)
        return run.replace(memory={}), logs

    memory = run.memory
    run, logs = jax.lax.scan(one_epoch, run.replace(memory={}), None, length=epochs)
    names = objective.log_names(objective.heads(trainer, run.model), run.metrics)
    return run.replace(memory=memory), {name: logs[name] for name in names}
