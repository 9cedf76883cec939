"""Saving in the course of a training, and going on where one was left."""

from __future__ import annotations

import base64
import dataclasses
import time
import warnings
from collections.abc import Mapping
from typing import Any

import jax
import ml_dtypes
import numpy as np

from fkeras.training.checkpoint import (
    Checkpoint,
    data_fingerprint,
    model_fingerprint,
    optimizer_fingerprint,
)
from fkeras.training.loop.interrupts import Interrupted
from fkeras.training.loop.rescue import Current, Point, add_note
from fkeras.training.records.state import TrainState


@dataclasses.dataclass(frozen=True)
class Found:
    """A training that was restored.

    Attributes:
        point: where it was left.
        history: the logs of the finished epochs by name.
        epochs: the numbers of these epochs.
        rows: the number of rows of a full batch, 0 if unknown.
    """

    point: Point
    history: dict[str, list[Any]]
    epochs: list[int]
    rows: int


def as_checkpoint(value: Any) -> Checkpoint:
    """The `Checkpoint` that a folder's name means."""
    return value if isinstance(value, Checkpoint) else Checkpoint(value)


class Saver:
    """Saves at the moments that a `Checkpoint` names, at a signal, and at an exception.

    Args:
        store: where the saves go.
        checkpoint: how often.
        trainer: the trainer.
        run: the run that the training begins with.
        feed: the data.
        shuffle: whether each epoch has its own order.
        current: the training as it stands.
    """

    def __init__(
        self,
        store: Any,
        checkpoint: Checkpoint,
        trainer: Any,
        run: TrainState,
        feed: Any,
        shuffle: bool,
        current: Current,
    ):
        self.store, self.checkpoint, self.current, self.feed = store, checkpoint, current, feed
        self.fingerprint = {
            "model": model_fingerprint(run.model),
            "optimizer": optimizer_fingerprint(trainer.optimizer),
            "data": data_fingerprint(feed, shuffle=shuffle),
        }
        self.begun, self.time = int(run.step), time.monotonic()
        self.saved: tuple[int, int, bool] | None = None  # the order of the newest saved point
        self.best: float | None = None

    def restore(self, like: TrainState) -> Found | None:
        """The training that was saved last, or None.

        Raises:
            CheckpointError: where the model, the optimizer or the data are others.
        """

        def with_memory(info: Mapping[str, Any], arrays: Mapping[str, Any]) -> TrainState:
            return like.replace(memory=_memory_like(info["memory"], arrays))

        found = self.store.restore(with_memory, self.fingerprint)
        if found is None:
            return None
        for message in found.messages:
            warnings.warn(message, stacklevel=5)
        info = found.info
        # saves of earlier versions have no such entries: there was nothing to tell
        point = Point(
            found.tree,
            stopped=info["stopped"],
            stopping=info.get("stopping", False),
            loader=_decode(info["loader"]),
            skip=info.get("skip", 0),
            pending=info.get("pending", False),
        )
        self.best, self.saved = info["best"], point.order
        return Found(point, info["history"], info["epochs"], info.get("rows", 0))

    def begin(self, run: TrainState) -> None:
        """An epoch begins, at its first batch or, resumed, in its middle."""
        self.begun = int(run.step) - int(run.position[1])

    def until(self, done: int) -> int | None:
        """How many batches after batch `done` the next save is; None where steps do not decide."""
        every = self.checkpoint.every
        return None if every is None else every - (self.begun + done) % every

    def late(self) -> bool:
        """Whether the seconds between two saves are over."""
        seconds = self.checkpoint.seconds
        return seconds is not None and time.monotonic() - self.time >= seconds

    def looked(self, point: Point) -> None:
        """Saves in the middle of an epoch, if it is time; raises if a signal came."""
        self.leave(point)
        every = self.checkpoint.every
        if self.late() or (every is not None and int(point.run.step) % every == 0):
            self.save(point)

    def leave(self, point: Point) -> None:
        """Raises if a signal came; the run is saved first."""
        number = self.current.interrupts.received
        if number is not None:
            self._save_newer(point)
            self.store.wait()
            raise Interrupted(
                f"Trainer.fit: ended by signal {number} after step {int(point.run.step)}, saved in "
                f"{self.checkpoint.directory}. The same call goes on from there.",
                point.run,
                number,
            )

    def end_epoch(self, point: Point, logs: Mapping[str, Any]) -> None:
        """Saves after an epoch, unless the `Checkpoint` names steps or seconds that are not over."""
        self.leave(point)
        better = self._better(logs)
        plan = self.checkpoint
        if better or (plan.every is None and plan.seconds is None) or self.late():
            self.save(point, better)

    def end(self, point: Point) -> None:
        """Saves the end of the training, and waits until all is written."""
        if not self.store.wait():
            self.saved = None  # the last save found no room on the disk
        self._save_newer(point)
        self.store.wait()

    def rescue(self, error: BaseException) -> None:
        """Saves the newest finished step before an exception leaves; a failure becomes a note."""
        self.current.interrupts.hold()
        try:
            if not self.store.wait():
                self.saved = None
        except Exception:  # a save before could not be written
            self.saved = None
        try:
            self._save_newer(self.current.point())
            self.store.wait()
        except BaseException as failure:  # the exception that ends the training is the one to see
            add_note(
                error,
                f"Trainer.fit: {self.checkpoint.directory} could not be brought up to date: "
                f"{type(failure).__name__}: {failure}",
            )

    def _better(self, logs: Mapping[str, Any]) -> bool:
        value = self.checkpoint.watched(logs)
        if value is None or not self.checkpoint.better(value, self.best):
            return False
        self.best = value
        return True

    def _save_newer(self, point: Point) -> None:
        if self.saved is None or point.order > self.saved:
            self.save(point)

    def save(self, point: Point, best: bool = False) -> None:
        """Saves a point with all that is known of the training."""
        history, epochs = self.current.history(point)
        info = {
            "history": history,
            "epochs": epochs,
            "stopped": point.stopped,
            "stopping": point.stopping,
            "loader": _encode(point.loader),
            "skip": point.skip,
            "pending": point.pending,
            "rows": self.feed.size,
            "memory": _memory_keys(point.run.memory),
            "best": self.best,
            "fingerprint": self.fingerprint,
        }
        self.store.save(int(point.run.step), point.run, info, best)
        self.saved, self.time = point.order, time.monotonic()

    def save_newest(self) -> str:
        """Saves the newest finished step and waits until it is written; returns where."""
        self.store.wait()
        self._save_newer(self.current.point())
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
