"""Compares the arguments of a call in all processes that make the call together."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from fkeras.host.processes.alone import Alone
from fkeras.host.processes.facts import run_facts
from fkeras.training.checkpoint import data_fingerprint, model_fingerprint, optimizer_fingerprint
from fkeras.training.data.array_feed import Feed
from fkeras.training.data.stream_feed import Batches
from fkeras.training.records.annotations import Options, Trainer
from fkeras.training.records.state import TrainState
from fkeras.training.step.masters import optimizer_of


def compare_call(
    group: Alone,
    trainer: Trainer,
    run: TrainState,
    feeds: Mapping[str, Feed | Batches | None],
    **settings: object,
) -> None:
    """Raises a `ProcessError` if the processes pass different arguments."""
    if group.count == 1:
        return
    facts = {
        "model": model_fingerprint(run.model),
        "optimizer": optimizer_fingerprint(optimizer_of(trainer)),
        # the memory of reporting callbacks is in one process
        "run": run_facts(run.replace(memory={})),
        **{name: _data(feed) for name, feed in feeds.items()},
        "settings": {name: repr(value) for name, value in settings.items()},
    }
    group.require_equal("arguments", facts)


def _data(feed: Feed | Batches | None) -> Any:
    # sources yield other rows in each process
    if isinstance(feed, Batches):
        return {"source": "batches", "steps": feed.steps}
    return None if feed is None else data_fingerprint(feed)


def settings_of(options: Options, callbacks: tuple) -> dict[str, Any]:
    """Returns the arguments of `fit` that all processes must have in common."""
    fields = {f.name: getattr(options, f.name) for f in dataclasses.fields(options)}
    del fields["verbose"]
    # a callback may hold values of its process
    return {**fields, "callbacks": [type(callback).__name__ for callback in callbacks]}
