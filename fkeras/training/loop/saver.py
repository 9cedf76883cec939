"""Saves the points of a training as checkpoints, and restores the newest checkpoint."""

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

from fkeras.host.processes.alone import ALONE, Alone
from fkeras.training.checkpoint import (
    CheckpointError,
    data_fingerprint,
    model_fingerprint,
    optimizer_fingerprint,
)
from fkeras.training.checkpoint.store import Store
from fkeras.training.data.array_feed import Feed
from fkeras.training.data.stream_feed import Batches
from fkeras.training.loop.journal import Point
from fkeras.training.records.annotations import Trainer
from fkeras.training.records.state import TrainState
from fkeras.training.step.masters import optimizer_of


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


class Saver:
    """Writes points of a training to the folder of a `Checkpoint`, and decides when a save is due.

    Attributes:
        saved: the order of the newest saved point.
        best: the best value of the monitored log so far.
    """

    def __init__(
        self,
        store: Store,
        trainer: Trainer,
        run: TrainState,
        feed: Feed | Batches,
        shuffle: bool,
        group: Alone = ALONE,
    ):
        self._store, self._checkpoint = store, store.checkpoint
        self._feed, self._group = feed, group
        # A checkpoint of another model, optimizer or data set would load without an error if the
        # shapes match, and continue with wrong numbers: compare fingerprints first.
        fingerprint = {
            "model": model_fingerprint(run.model),
            "optimizer": optimizer_fingerprint(optimizer_of(trainer)),
            "data": data_fingerprint(feed, shuffle=shuffle),
        }
        # the sources of the processes differ, so the fingerprint is that of the first process
        self._fingerprint = group.agree(fingerprint, "the fingerprints")[0]
        self._begun, self._time = int(run.step), time.monotonic()
        self.saved: tuple[int, int, bool] | None = None
        self.best: float | None = None

    @property
    def folder(self) -> str:
        """Folder of the checkpoints."""
        return str(self._checkpoint.directory)

    def restore(self, like: TrainState) -> RestoredTraining | None:
        """Returns the newest checkpoint, or None.

        Raises:
            CheckpointError: if the model, the optimizer or the data differ from the checkpoint's.
        """

        def with_memory(info: Mapping[str, Any], arrays: Mapping[str, Any]) -> TrainState:
            return like.replace(memory=_memory_like(info["memory"], arrays))

        restored = self._store.restore(with_memory, self._fingerprint)
        if restored is None:
            return None
        for message in restored.messages if self._group.leads else ():
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
        if len(states) == self._group.count:
            return _decode(states[self._group.index])
        if states[0] is None or (
            isinstance(self._feed, Batches) and self._feed.moves_between_shares
        ):
            return _decode(states[0])
        raise CheckpointError(
            f"Checkpoint {self._checkpoint.directory!r}: expected {len(states)} processes as in the save, "
            f"received {self._group.count}: the position of this loader counts the share of one process. "
            "Start as many processes, or use arrays or a fk.utils Dataset, whose position is valid "
            "for any number of processes."
        )

    def begin(self, run: TrainState) -> None:
        """Records the step at which an epoch began; a resumed epoch began before `run.step`."""
        self._begun = int(run.step) - int(run.position[1])

    def until(self, done: int) -> int | None:
        """Returns the number of batches from batch `done` to the next save by step count, or None."""
        every = self._checkpoint.every
        return None if every is None else every - (self._begun + done) % every

    def is_due(self, step: int) -> bool:
        """Returns whether the number of steps requires a save."""
        every = self._checkpoint.every
        return every is not None and step % every == 0

    def late(self) -> bool:
        """Returns whether the interval in seconds since the last save has passed."""
        seconds = self._checkpoint.seconds
        return seconds is not None and time.monotonic() - self._time >= seconds

    @property
    def saves_epochs(self) -> bool:
        """Whether each epoch ends with a save, as no other interval is set."""
        return self._checkpoint.every is None and self._checkpoint.seconds is None

    def is_better(self, logs: Mapping[str, Any]) -> bool:
        """Returns whether the monitored log of an epoch is the best so far, and records the best."""
        value = self._checkpoint.watched(logs)
        if value is None or not self._checkpoint.better(value, self.best):
            return False
        self.best = value
        return True

    def save(
        self,
        point: Point,
        history: Mapping[str, list[Any]],
        epochs: list[int],
        best: bool,
        group: Alone,
    ) -> None:
        """Saves a point, with the logs and the settings that a resumed training needs.

        Args:
            group: the processes, with the exchanges to use.
        """
        loader = _encode(point.loader)
        # The store checks `fingerprint` before it reads any array.
        info = {
            "history": history,
            "epochs": epochs,
            "stopped": point.stopped,
            "stopping": point.stopping,
            "loader": loader,
            "loaders": group.agree(loader, "the positions of the loaders"),
            "skip": point.skip,
            "pending": point.pending,
            "rows": self._feed.rows(1),
            "memory": _memory_keys(point.run.memory),
            "best": self.best,
            "fingerprint": self._fingerprint,
        }
        self._store.save(int(point.run.step), point.run, info, best)
        self.saved, self._time = point.order, time.monotonic()

    def wait(self) -> None:
        """Waits until all files are written."""
        if not self._store.wait():
            self.saved = None  # the last save failed because the disk was full: save again


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


def _encode(value: object) -> Any:
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


def _decode(value: object) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"base64"}:
            return base64.b64decode(value["base64"])
        return {key: _decode(item) for key, item in value.items()}
    return [_decode(item) for item in value] if isinstance(value, list) else value
