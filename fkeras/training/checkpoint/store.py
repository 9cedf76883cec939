"""`Store`: a folder of checkpoints that this process alone writes to."""

from __future__ import annotations

import functools
import os
import threading
import warnings
from collections.abc import Mapping
from typing import Any, Self

from fkeras.training.checkpoint.background import Background
from fkeras.training.checkpoint.files import disk
from fkeras.training.checkpoint.files.arrays import host_arrays
from fkeras.training.checkpoint.files.errors import CheckpointError, is_disk_full
from fkeras.training.checkpoint.files.lock import Lock
from fkeras.training.checkpoint.files.manifest import as_json
from fkeras.training.checkpoint.files.orbax_files import load_orbax
from fkeras.training.checkpoint.files.writing import BEST, LATEST, PARTIAL, write_save
from fkeras.training.checkpoint.plan import Checkpoint
from fkeras.training.checkpoint.reading import Restored, restore


class Store:
    """Saves pytrees of arrays into a folder, and reads them back; `open_store` makes one.

    Its methods may be called from any thread.

    Example:
        >>> import tempfile, jax.numpy as jnp
        >>> from fkeras.training.checkpoint import Checkpoint, open_store
        >>> with tempfile.TemporaryDirectory() as folder, open_store(Checkpoint(folder)) as store:
        ...     store.save(1, {"w": jnp.ones(2)}, {"epoch": 0})
        ...     written = store.wait()
        ...     store.restore({"w": jnp.zeros(2)}).tree
        {'w': Array([1., 1.], dtype=float32)}
    """

    def __init__(self, checkpoint: Checkpoint, directory: str, lock: Lock):
        self.checkpoint, self.directory = checkpoint, directory
        self._lock = lock
        self._background = Background()
        self._guard = threading.RLock()
        self._broken: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            self.close()
        except CheckpointError as own:
            if error is None:
                raise
            # the error that ends the training is the one to see, also where warnings are errors
            try:
                warnings.warn(str(own), stacklevel=2)
            except Warning:
                error.add_note(str(own))

    def save(self, step: int, tree: Any, info: Mapping[str, Any], best: bool = False) -> None:
        """Saves a tree; its arrays are copied before this returns, and written after.

        Waits for the save before it, and tells what went wrong with that.

        Args:
            step: the number of the step that the tree is of.
            tree: any pytree of arrays and numbers.
            info: JSON data beside it.
            best: whether it is kept as the best one too.

        Raises:
            TypeError: for a leaf that is no number, or info that is no JSON.
            CheckpointError: where the save before could not be written.
        """
        if isinstance(step, bool) or not hasattr(step, "__index__") or int(step) < 0:
            raise TypeError(
                f"Store.save: expected a whole number of at least 0 as step, received {step!r}. "
                "Pass int(run.step)."
            )
        with self._guard:
            self._opened("save")
            self.wait()
            write = functools.partial(
                write_save,
                self.directory,
                int(step),
                host_arrays(tree),
                as_json(info),
                best,
                self.checkpoint.keep,
                self._broken,
            )
            self._background.start(write)
            if not self.checkpoint.asynchronous:
                self.wait()

    def wait(self) -> bool:
        """Waits until the save that is under way is on the disk.

        Returns:
            Whether all saves since the last call are written; False after the warning of a full
            disk.

        Raises:
            CheckpointError: where it could not be written; for a full disk only with
                `on_disk_full="stop"`, otherwise that is a warning.
        """
        with self._guard:
            error = self._background.wait()
            if error is None:
                return True
            if not isinstance(error, Exception):
                raise error
            last = disk.saves(os.path.join(self.directory, LATEST))
            kept = f"that of step {last[0].step} stays" if last else "there is none before it"
            if not is_disk_full(error):
                raise CheckpointError(
                    f"Checkpoint {self.directory!r}: a save could not be written, {kept}: "
                    f"{type(error).__name__}: {error}"
                ) from error
            message = (
                f"Checkpoint {self.directory!r}: there is no room on the disk for a save, {kept}. "
                "Make room, or lower keep."
            )
            if self.checkpoint.on_disk_full == "stop":
                raise CheckpointError(message) from error
            warnings.warn(f"{message} The training goes on.", stacklevel=3)
            return False

    def restore(self, like: Any, fingerprint: Mapping[str, Any] | None = None) -> Restored | None:
        """The newest whole save as a `Restored`, or None; see `restore` for what it checks.

        Args:
            like: a pytree of arrays or `ShapeDtypeStruct`s.
            fingerprint: facts to compare with `info["fingerprint"]`.
        """
        return self._restore(like, LATEST, fingerprint)

    def best(self, like: Any, fingerprint: Mapping[str, Any] | None = None) -> Restored | None:
        """The save that is the best one, likewise."""
        return self._restore(like, BEST, fingerprint)

    def _restore(self, like: Any, kind: str, fingerprint: Any) -> Restored | None:
        with self._guard:
            self._opened("restore")
            self.wait()
            found = restore(self.directory, like, kind=kind, fingerprint=fingerprint)
            if found is not None and kind == LATEST:
                self._broken = found.broken
            return found

    def close(self) -> None:
        """Waits for the save under way and lets other runs into the folder; twice does nothing.

        Raises:
            CheckpointError: where that save could not be written.
        """
        with self._guard:
            try:
                self.wait()
            finally:
                self._lock.release()

    def _opened(self, call: str) -> None:
        if not self._lock.held:
            raise CheckpointError(
                f"Store.{call}: expected a store that is open, and that of {self.directory!r} is "
                "closed, or another process opened it. Open it here with open_store(checkpoint)."
            )


def open_store(checkpoint: Checkpoint) -> Store:
    """Makes the folder of a `Checkpoint`, takes its lock, and removes what half-written saves left.

    Use it with `with`, which waits for the last save and gives the lock back.

    Args:
        checkpoint: where, and what is kept; a folder's name does too.

    Raises:
        CheckpointError: where another run holds the folder, or it cannot be written to.
        ImportError: where orbax is not installed.

    Example:
        >>> import tempfile
        >>> from fkeras.training.checkpoint import Checkpoint, open_store
        >>> with tempfile.TemporaryDirectory() as folder, open_store(Checkpoint(folder)) as store:
        ...     print(store.restore({}))
        None
    """
    if not isinstance(checkpoint, Checkpoint):
        checkpoint = Checkpoint(checkpoint)
    load_orbax()
    # a program may change its working folder while it trains
    directory = os.path.abspath(checkpoint.directory)
    try:
        os.makedirs(directory, exist_ok=True)
        lock = Lock(directory)
    except OSError as error:
        raise CheckpointError(_unusable(directory, error)) from error
    try:
        disk.empty(os.path.join(directory, PARTIAL))
        for kind in (LATEST, BEST):
            os.makedirs(os.path.join(directory, kind), exist_ok=True)
        disk.flush(directory)
        return Store(checkpoint, directory, lock)
    except BaseException as error:
        lock.release()
        if isinstance(error, OSError):
            raise CheckpointError(_unusable(directory, error)) from error
        raise


def _unusable(directory: str, error: OSError) -> str:
    return (
        f"Checkpoint: expected a folder that can be written to, and {directory!r} cannot: "
        f"{error.strerror or error}. Choose another directory."
    )
