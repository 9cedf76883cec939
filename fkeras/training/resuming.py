"""Saving in the course of a training, and going on where one was left."""

from __future__ import annotations

import base64
import dataclasses
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax
import ml_dtypes
import numpy as np

from fkeras.training.checkpoint import (
    Checkpoint,
    CheckpointError,
    data_fingerprint,
    model_fingerprint,
    optimizer_fingerprint,
)
from fkeras.training.interrupts import Interrupted, Interrupts
from fkeras.training.loops import Visits
from fkeras.training.state import TrainState


@dataclasses.dataclass
class Progressed:
    """What is known of a training beside its run.

    Attributes:
        history: the logs of the epochs that are over, by name.
        epochs: the numbers of these epochs.
        stopped: whether a callback ended it.
        loader: the own state of the source of batches.
    """

    history: dict[str, list[float]]
    epochs: list[int]
    stopped: bool = False
    loader: Any = None

    def add(self, epoch: int, logs: Mapping[str, Any]) -> None:
        """An epoch is over."""
        self.epochs.append(epoch)
        for name, value in logs.items():
            self.history.setdefault(name, []).append(value)


def as_checkpoint(value: Any) -> Checkpoint:
    """The `Checkpoint` that a folder's name means."""
    return value if isinstance(value, Checkpoint) else Checkpoint(value)


class Saver(Visits):
    """Saves where its `Checkpoint` says so, and leaves a training that a signal ends.

    Args:
        store: where the saves go.
        checkpoint: how often.
        trainer: the trainer.
        run: the run that the training begins with.
        feed: the data.
        shuffle: whether each epoch has its own order.
        progressed: what else is saved; the training writes into it.
    """

    def __init__(
        self,
        store: Any,
        checkpoint: Checkpoint,
        trainer: Any,
        run: TrainState,
        feed: Any,
        shuffle: bool,
        progressed: Progressed,
    ):
        self.store, self.checkpoint, self.progressed = store, checkpoint, progressed
        self.fingerprint = {
            "model": model_fingerprint(run.model),
            "optimizer": optimizer_fingerprint(trainer.optimizer),
            "data": data_fingerprint(feed, shuffle=shuffle),
        }
        self.interrupts = Interrupts(self._save_settled)
        self.settled: Callable[[], TrainState] = lambda: run
        self.begun, self.saved, self.time = int(run.step), -1, time.monotonic()
        self.best: float | None = None

    def restore(self, like: TrainState) -> TrainState | None:
        """The run that was saved last, or None; the rest goes into `progressed`.

        Raises:
            CheckpointError: where the model, the optimizer or the data are others.
        """

        def with_memory(info: Mapping[str, Any], arrays: Mapping[str, Any]) -> TrainState:
            return like.replace(memory=_memory_like(info["memory"], arrays))

        found = self.store.restore(with_memory, self.fingerprint)
        if found is None:
            return None
        for message in found.messages:
            warnings.warn(message, stacklevel=4)
        info = found.info
        self.progressed.history.update(info["history"])
        self.progressed.epochs.extend(info["epochs"])
        self.progressed.stopped = info["stopped"]
        self.progressed.loader = _decode(info["loader"])
        self.best, self.saved = info["best"], int(found.tree.step)
        return found.tree

    def begin(self, run: TrainState) -> None:
        """An epoch begins, at its first batch or, resumed, in its middle."""
        self.begun = int(run.step) - int(run.position[1])
        self.settled = lambda: run

    def until(self, done: int) -> int | None:
        every = self.checkpoint.every
        return None if every is None else every - (self.begun + done) % every

    def wanted(self) -> bool:
        return self.interrupts.received is not None or self._late()

    def _late(self) -> bool:
        seconds = self.checkpoint.seconds
        return seconds is not None and time.monotonic() - self.time >= seconds

    def look(self, run: TrainState, done: int, logs: Any, state: Any) -> tuple[TrainState, bool]:
        self.progressed.loader = state
        self.settled = lambda: run
        self.leave(run)
        every = self.checkpoint.every
        if self._late() or (every is not None and int(run.step) % every == 0):
            self.save(run)
        return run, False

    def leave(self, run: TrainState) -> None:
        """Raises where a signal came; the run is saved first."""
        number = self.interrupts.received
        if number is not None:
            self.save(run)
            self.store.wait()
            raise Interrupted(
                f"Trainer.fit: ended by signal {number} after step {int(run.step)}, saved in "
                f"{self.checkpoint.directory}. The same call goes on from there.",
                run,
                number,
            )

    def end_epoch(self, run: TrainState, logs: Mapping[str, Any]) -> None:
        """Saves after an epoch, unless the `Checkpoint` names steps or seconds that are not over."""
        self.settled = lambda: run
        self.leave(run)
        better = self._better(logs)
        plan = self.checkpoint
        if better or (plan.every is None and plan.seconds is None) or self._late():
            self.save(run, better)

    def end(self, run: TrainState) -> None:
        """Saves what the training ends with, and waits until all is written."""
        if int(run.step) != self.saved or self.progressed.stopped:
            self.save(run)
        self.store.wait()

    def rescue(self, error: Exception) -> None:
        """Saves what was settled before an error, where it is newer than the last save."""
        if isinstance(error, CheckpointError):
            return
        run = getattr(error, "run", None) or self.settled()
        if int(run.step) > self.saved:
            self.save(run)
        self.store.wait()

    def _better(self, logs: Mapping[str, Any]) -> bool:
        value = self.checkpoint.watched(logs)
        if value is None or not self.checkpoint.better(value, self.best):
            return False
        self.best = value
        return True

    def save(self, run: TrainState, best: bool = False) -> None:
        """Saves the run with all that is known of the training."""
        step = int(run.step)
        if step == self.saved and not best and int(run.position[1]):
            return
        progressed = self.progressed
        info = {
            "history": progressed.history,
            "epochs": progressed.epochs,
            "stopped": progressed.stopped,
            "loader": _encode(progressed.loader),
            "memory": _memory_keys(run.memory),
            "best": self.best,
            "fingerprint": self.fingerprint,
        }
        self.store.save(step, run, info, best)
        self.saved, self.time = step, time.monotonic()

    def _save_settled(self) -> str:
        run = self.settled()
        self.store.wait()
        self.save(run)
        self.store.wait()
        return str(self.checkpoint.directory)


def _memory_keys(memory: Mapping[str, Any]) -> list[list[str]]:
    """The keys to each array of what callbacks remember."""
    found = []
    for path, _ in jax.tree_util.tree_flatten_with_path(memory)[0]:
        if not all(isinstance(key, jax.tree_util.DictKey) for key in path):
            raise TypeError(
                f"Callback {path[0].key!r}: expected dictionaries of arrays in its memory, "
                f"received something else at {jax.tree_util.keystr(path[1:])}. A training that is "
                "saved keeps what callbacks remember by its keys."
            )
        found.append([key.key for key in path])
    return found


def _memory_like(keys: list[list[str]], arrays: Mapping[str, Any]) -> dict[str, Any]:
    """What callbacks remembered in a save, as shapes; the callbacks alone know its structure."""
    memory: dict[str, Any] = {}
    for path in keys:
        facts, inner = arrays["/".join(["memory", *path])], memory
        for key in path[:-1]:
            inner = inner.setdefault(key, {})
        dtype = np.dtype(getattr(ml_dtypes, facts["dtype"], facts["dtype"]))
        inner[path[-1]] = jax.ShapeDtypeStruct(facts["shape"], dtype)
    return memory


def _encode(value: Any) -> Any:
    """A loader's state in JSON."""
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {key: _encode(one) for key, one in value.items()}
    return [_encode(one) for one in value] if isinstance(value, list | tuple) else value


def _decode(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"base64"}:
            return base64.b64decode(value["base64"])
        return {key: _decode(one) for key, one in value.items()}
    return [_decode(one) for one in value] if isinstance(value, list) else value
