"""Saves checkpoints during a training, and restores the newest checkpoint."""

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

from fkeras.engine.messages.errors import add_note
from fkeras.training.checkpoint import (
    Checkpoint,
    CheckpointError,
    data_fingerprint,
    model_fingerprint,
    optimizer_fingerprint,
)
from fkeras.training.loop.interrupts import Interrupted
from fkeras.training.loop.rescue import Current, Point
from fkeras.training.processes.alone import ALONE, Alone
from fkeras.training.processes.service import ProcessError
from fkeras.training.records.state import TrainState


@dataclasses.dataclass(frozen=True)
class RestoredTraining:
    """Restored checkpoint of a training.

    Attributes:
        point: the point to continue from.
        history: logs of the finished epochs, by name.
        epochs: numbers of these epochs.
        rows: number of rows of a full batch, 0 if unknown.
    """

    point: Point
    history: dict[str, list[Any]]
    epochs: list[int]
    rows: int


def as_checkpoint(value: Any) -> Checkpoint:
    """Returns a `Checkpoint`; a folder's name becomes a `Checkpoint` with default settings."""
    return value if isinstance(value, Checkpoint) else Checkpoint(value)


class Saver:
    """Saves at the intervals of a `Checkpoint`, at a signal, and at an exception.

    Args:
        store: writes and reads the files.
        checkpoint: folder and intervals.
        trainer: the trainer.
        run: the run that the training begins with.
        feed: the data.
        shuffle: whether each epoch shuffles the rows.
        current: the newest point of the training.
        group: the processes that train together.
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
        group: Alone = ALONE,
    ):
        self.group, self._rescue = group, group.channel("rescue")
        # signal and elapsed interval that the processes have agreed on, in a group
        self._agreed: tuple[int | None, bool] = (None, False)
        self.store, self.checkpoint, self.current, self.feed = store, checkpoint, current, feed
        # A checkpoint of another model, optimizer or data set would load without an error if the
        # shapes match, and continue with wrong numbers: compare fingerprints first.
        self.fingerprint = {
            "model": model_fingerprint(run.model),
            "optimizer": optimizer_fingerprint(trainer.optimizer),
            "data": data_fingerprint(feed, shuffle=shuffle),
        }
        # the sources of the processes differ, so the fingerprint is that of the first process
        self.fingerprint = group.agree(self.fingerprint, "the fingerprints")[0]
        self.begun, self.time = int(run.step), time.monotonic()
        self.saved: tuple[int, int, bool] | None = None  # the order of the newest saved point
        self.best: float | None = None

    def restore(self, like: TrainState) -> RestoredTraining | None:
        """Returns the newest checkpoint, or None.

        Raises:
            CheckpointError: if the model, the optimizer or the data differ from the checkpoint's.
        """

        def with_memory(info: Mapping[str, Any], arrays: Mapping[str, Any]) -> TrainState:
            return like.replace(memory=_memory_like(info["memory"], arrays))

        restored = self.store.restore(with_memory, self.fingerprint)
        if restored is None:
            return None
        for message in restored.messages if self.group.leads else ():
            warnings.warn(message, stacklevel=5)
        info = restored.info
        # `get`: checkpoints of earlier versions lack these entries, and the defaults describe
        # what those versions did.
        point = Point(
            restored.tree,
            stopped=info["stopped"],
            stopping=info.get("stopping", False),
            loader=self._own_loader(info),
            skip=info.get("skip", 0),
            pending=info.get("pending", False),
        )
        self.best, self.saved = info["best"], point.order
        return RestoredTraining(point, info["history"], info["epochs"], info.get("rows", 0))

    def _own_loader(self, info: Mapping[str, Any]) -> Any:
        """Returns the state of this process's loader, from the states of all processes."""
        states = info.get("loaders", [info["loader"]])
        if len(states) == self.group.count:
            return _decode(states[self.group.index])
        if states[0] is None or self.feed.moves_between_shares:
            return _decode(states[0])
        raise CheckpointError(
            f"Checkpoint {self.checkpoint.directory!r}: expected {len(states)} processes as in the save, "
            f"received {self.group.count}: the position of this loader is that of one process's share. "
            "Start as many processes, or use arrays or a fk.utils Dataset, whose position is valid "
            "for any number of processes."
        )

    def agree(self) -> None:
        """Lets all processes of a group agree on a signal, and on a save that is due.

        A signal that one process receives then ends the training in all processes, at the same step.
        """
        if self.group.count > 1:
            own = [self.current.interrupts.received, self.late()]
            signals, due = zip(*self.group.agree(own, "signals and intervals"), strict=True)
            received = next((number for number in signals if number is not None), None)
            self._agreed = received, any(due)

    def is_due(self) -> bool:
        """Returns whether the processes of a group agreed to save or to end."""
        return self._agreed[0] is not None or self._agreed[1]

    def _is_late(self) -> bool:
        return self.late() if self.group.count == 1 else self._agreed[1]

    def begin(self, run: TrainState) -> None:
        """Records the step at which an epoch began; a resumed epoch began before `run.step`."""
        self.begun = int(run.step) - int(run.position[1])

    def until(self, done: int) -> int | None:
        """Returns the number of batches from batch `done` to the next save by step count, or None."""
        every = self.checkpoint.every
        return None if every is None else every - (self.begun + done) % every

    def late(self) -> bool:
        """Returns whether the interval in seconds since the last save has passed."""
        seconds = self.checkpoint.seconds
        return seconds is not None and time.monotonic() - self.time >= seconds

    def end_visit(self, point: Point) -> None:
        """Saves in the middle of an epoch if a save is due; raises if a signal arrived."""
        self.leave(point)
        every = self.checkpoint.every
        if self._is_late() or (every is not None and int(point.run.step) % every == 0):
            self.save(point)

    def leave(self, point: Point) -> None:
        """Saves the run and raises `Interrupted` if a signal arrived."""
        alone = self.group.count == 1
        number = self.current.interrupts.received if alone else self._agreed[0]
        if number is not None:
            self._save_newer(point)
            self.store.wait()  # the process may end right after the exception
            raise Interrupted(
                f"Trainer.fit: ended by signal {number} after step {int(point.run.step)}, saved in "
                f"{self.checkpoint.directory}. The same call resumes from there.",
                point.run,
                number,
            )

    def end_epoch(self, point: Point, logs: Mapping[str, Any]) -> None:
        """Saves after an epoch, unless `every` or `seconds` sets another interval.

        The best epoch by the monitored log is always saved.
        """
        self.leave(point)
        is_best = self._better(logs)
        plan = self.checkpoint
        if is_best or (plan.every is None and plan.seconds is None) or self._is_late():
            self.save(point, is_best)

    def end(self, point: Point) -> None:
        """Saves the end of the training, and waits until all files are written."""
        if not self.store.wait():
            self.saved = None  # the last save failed because the disk was full: save again
        self._save_newer(point)
        self.store.wait()

    def rescue(self, error: BaseException) -> None:
        """Saves the newest finished step before an exception leaves; adds a note on failure."""
        self.current.interrupts.hold()  # a second Ctrl-C would interrupt the save
        self.group.report_failure(error)  # the other processes then come here, too
        try:
            if not self.store.wait():
                self.saved = None
        except Exception:  # an earlier save failed in the background: its point is not on disk
            self.saved = None
        try:
            self._require_same_step()
            self._save_newer(self.current.point(), self._rescue)
            self.store.wait()
        except BaseException as failure:  # never hide the exception that ends the training
            add_note(
                error,
                f"Trainer.fit: the last step could not be saved in {self.checkpoint.directory}: "
                f"{type(failure).__name__}: {failure}",
            )

    def _require_same_step(self) -> None:
        """Raises a `ProcessError` if the processes of a group cannot save the same step together."""
        if self.group.count == 1:
            return
        # No process has dispatched a call that another has not: all results will be there.
        own, results = self.current.dispatched()
        dispatched = self._rescue.agree(own, "the last batch")
        if len(set(dispatched)) > 1:
            raise ProcessError(f"the processes had computed different batches: {dispatched}")
        self._rescue.wait(results)
        orders = self._rescue.agree(list(self.current.point().order), "the last step")
        if any(order != orders[0] for order in orders):
            raise ProcessError(f"the processes are at different steps: {orders}")

    def _better(self, logs: Mapping[str, Any]) -> bool:
        value = self.checkpoint.watched(logs)
        if value is None or not self.checkpoint.better(value, self.best):
            return False
        self.best = value
        return True

    def _save_newer(self, point: Point, group: Alone | None = None) -> None:
        if self.saved is None or point.order > self.saved:
            self.save(point, group=group)

    def save(self, point: Point, best: bool = False, group: Alone | None = None) -> None:
        """Saves a point, with the history and the settings that a resumed training needs.

        Args:
            best: whether the point is the best one so far.
            group: the processes, with the exchanges to use; the group of the training by default.
        """
        loader, group = _encode(point.loader), group or self.group
        # The store checks `fingerprint` before it reads any array.
        history, epochs = self.current.history(point)
        info = {
            "history": history,
            "epochs": epochs,
            "stopped": point.stopped,
            "stopping": point.stopping,
            "loader": loader,
            "loaders": group.agree(loader, "the positions of the loaders"),
            "skip": point.skip,
            "pending": point.pending,
            "rows": self.feed.rows(1),
            "memory": _memory_keys(point.run.memory),
            "best": self.best,
            "fingerprint": self.fingerprint,
        }
        self.store.save(int(point.run.step), point.run, info, best)
        self.saved, self.time = point.order, time.monotonic()

    def save_newest(self) -> str:
        """Saves the newest finished step, waits for the files, and returns the folder.

        The thread that watches signals calls this method while the main thread is blocked.
        """
        self.store.wait()
        self._save_newer(self.current.point())
        self.store.wait()
        return str(self.checkpoint.directory)


def _memory_keys(memory: Mapping[str, Any]) -> list[list[str]]:
    """Returns the path of keys to each array in the memory of the callbacks."""
    # `info` is JSON, so the structure must be dictionaries with string keys. The arrays are
    # stored like those of the run.
    paths = []
    for path, _ in jax.tree_util.tree_flatten_with_path(memory)[0]:
        if not all(isinstance(key, jax.tree_util.DictKey) for key in path):
            raise TypeError(
                f"Callback {path[0].key!r}: expected dictionaries of arrays in its memory, "
                f"received another container at {jax.tree_util.keystr(path[1:])}. Checkpoints "
                "store the memory of callbacks by key: use dictionaries."
            )
        paths.append([key.key for key in path])
    return paths


def _memory_like(keys: list[list[str]], arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the specs of the callback memory in a checkpoint, for reading the arrays.

    The structure comes from the checkpoint: callbacks create their memory during training.
    """
    memory: dict[str, Any] = {}
    for path in keys:
        entry, group = arrays["/".join(["memory", *path])], memory
        for key in path[:-1]:
            group = group.setdefault(key, {})
        # NumPy knows bfloat16 and the float8 types only through ml_dtypes.
        dtype = np.dtype(getattr(ml_dtypes, entry["dtype"], entry["dtype"]))
        group[path[-1]] = jax.ShapeDtypeStruct(entry["shape"], dtype)
    return memory


def _encode(value: Any) -> Any:
    """Returns a loader's state as JSON values."""
    # Grain's iterators return bytes; others return dictionaries. Pickle is avoided on purpose:
    # opening a checkpoint must not run code from the file.
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {key: _encode(item) for key, item in value.items()}
    return [_encode(item) for item in value] if isinstance(value, list | tuple) else value


def _decode(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"base64"}:
            return base64.b64decode(value["base64"])
        return {key: _decode(item) for key, item in value.items()}
    return [_decode(item) for item in value] if isinstance(value, list) else value
