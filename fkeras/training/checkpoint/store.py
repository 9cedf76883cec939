"""`Store`: a folder of checkpoints to which only this process, or its group of processes, writes."""

from __future__ import annotations

import functools
import os
import threading
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Self

import jax

from fkeras.engine.values.argument_types import FilePath
from fkeras.host.processes.alone import ALONE, Alone
from fkeras.host.processes.service import ProcessError
from fkeras.training.checkpoint.opening import open_folder, open_together
from fkeras.training.checkpoint.plan import Checkpoint
from fkeras.training.checkpoint.reading import Restored, restore_together
from fkeras.training.checkpoint.storage import disk
from fkeras.training.checkpoint.storage.arrays import host_arrays
from fkeras.training.checkpoint.storage.errors import (
    CheckpointError,
    JointSaveError,
    is_disk_full,
)
from fkeras.training.checkpoint.storage.joint_writing import write_joint_save
from fkeras.training.checkpoint.storage.lock import Lock, SharedLock
from fkeras.training.checkpoint.storage.manifest import as_json
from fkeras.training.checkpoint.storage.orbax_files import load_orbax
from fkeras.training.checkpoint.storage.shards import own_parts
from fkeras.training.checkpoint.storage.writing import BEST, LATEST, write_save


class Background:
    """Runs one function at a time in a second thread; `wait` returns the function's error."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def start(self, function: Callable[[], None]) -> None:
        """Starts a function; call `wait` for the previous function first."""

        def run() -> None:
            try:
                function()
            except BaseException as error:
                self._error = error

        # Not a daemon thread: Python waits for the save when the main thread ends.
        self._thread = threading.Thread(target=run, name="fkeras-checkpoint")
        self._thread.start()

    def wait(self) -> BaseException | None:
        """Waits until the function ends; returns its error once, or None."""
        if self._thread is not None:
            if self._thread.ident is not None:  # None: an interrupt came before the start
                self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        return error


class Store:
    """Saves pytrees of arrays in a folder and restores them; `open_store` returns a store.

    All methods are thread-safe.

    Example:
        >>> import tempfile, jax.numpy as jnp
        >>> from fkeras.training.checkpoint import Checkpoint, open_store
        >>> with tempfile.TemporaryDirectory() as folder, open_store(Checkpoint(folder)) as store:
        ...     store.save(1, {"w": jnp.ones(2)}, {"epoch": 0})
        ...     written = store.wait()
        ...     store.restore({"w": jnp.zeros(2)}).tree
        {'w': Array([1., 1.], dtype=float32)}
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        directory: str,
        lock: Lock | SharedLock,
        group: Alone = ALONE,
        writers: Alone = ALONE,
    ):
        self.checkpoint, self.directory = checkpoint, directory
        self._lock, self._group, self._writers = lock, group, writers
        self._background = Background()
        # Reentrant, because `save` and `restore` call `wait`. The thread that watches signals may
        # save while the main thread does.
        self._guard = threading.RLock()
        self._broken: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.close()
        except CheckpointError as store_error:
            if error is None:
                raise
            # Do not hide the error that ends the training, even if warnings are errors.
            try:
                warnings.warn(str(store_error), stacklevel=2)
            except Warning:
                error.add_note(str(store_error))

    def save(self, step: int, tree: object, info: Mapping[str, Any], best: bool = False) -> None:
        """Saves a tree: copies the arrays before returning, and writes them in the background.

        The method first waits for the previous save, and reports its failure.

        Args:
            best: whether to keep the save as the best one, too.

        Raises:
            TypeError: for a leaf that is not a number, or info that is not JSON.
            CheckpointError: if writing the previous save failed.
        """
        if isinstance(step, bool) or not hasattr(step, "__index__") or int(step) < 0:
            raise TypeError(
                f"Store.save: expected an integer of at least 0 as step, received {step!r}. Pass "
                "int(run.step)."
            )
        with self._guard:
            self._opened("save")
            self.wait()
            options = (as_json(info), best, self.checkpoint.keep, self._broken)
            # `host_arrays` and `own_parts` copy here, in the calling thread: the next step of a
            # large run donates the arrays.
            if self._in_parts:
                parts = own_parts(tree, self._writers)
                write = functools.partial(
                    write_joint_save, self._writers, self.directory, int(step), parts, *options
                )
            else:
                write = functools.partial(
                    write_save, self.directory, int(step), host_arrays(tree), *options
                )
            self._background.start(write)
            if not self.checkpoint.asynchronous:
                self.wait()

    def wait(self) -> bool:
        """Waits until the current save is on disk.

        Returns:
            Whether all saves since the last call were written; False after the warning about a
            full disk.

        Raises:
            CheckpointError: if writing failed; a full disk is an error only with
                `on_disk_full="stop"`, otherwise a warning.
            ProcessError: if another process of the group has ended.
        """
        with self._guard:
            error = self._background.wait()
            if error is None:
                return True
            if not isinstance(error, Exception) or isinstance(error, ProcessError):
                raise error
            if isinstance(error, JointSaveError):
                newest, text = error.newest, str(error)
            else:
                older_saves = disk.saves(os.path.join(self.directory, LATEST))
                newest = older_saves[0].step if older_saves else None
                text = f"{type(error).__name__}: {error}"
            fallback = (
                "no earlier save exists" if newest is None else f"the save of step {newest} remains"
            )
            if not is_disk_full(error):
                raise CheckpointError(
                    f"Checkpoint {self.directory!r}: a save could not be written, {fallback}: {text}"
                ) from error
            message = (
                f"Checkpoint {self.directory!r}: the disk is full, {fallback}. Free disk space, or "
                "lower keep."
            )
            if self.checkpoint.on_disk_full == "stop":
                raise CheckpointError(message) from error
            warnings.warn(f"{message} The training continues.", stacklevel=3)
            return False

    def restore(
        self, like: object, fingerprint: Mapping[str, Any] | None = None
    ) -> Restored | None:
        """Returns the newest undamaged save as a `Restored`, or None; checks as `restore`.

        Args:
            fingerprint: facts to compare with `info["fingerprint"]`.
        """
        return self._restore(like, LATEST, fingerprint)

    def best(self, like: object, fingerprint: Mapping[str, Any] | None = None) -> Restored | None:
        """Returns the best save as a `Restored`, or None; the arguments are those of `restore`."""
        return self._restore(like, BEST, fingerprint)

    @property
    def _in_parts(self) -> bool:
        # Orbax's handler for one process writes in process 0 only, even if the processes train separately.
        return self._group.count > 1 or jax.process_count() > 1

    def _restore(
        self, like: object, kind: str, fingerprint: Mapping[str, Any] | None
    ) -> Restored | None:
        with self._guard:
            self._opened("restore")
            self.wait()
            restored = restore_together(self.directory, like, kind, fingerprint, self._group)
            # Damaged saves must not count towards `keep`, or the undamaged ones would be removed.
            if restored is not None and kind == LATEST:
                self._broken = restored.broken
            return restored

    def close(self) -> None:
        """Waits for the current save and releases the lock; a second call does nothing.

        Raises:
            CheckpointError: if writing the save failed.
        """
        with self._guard:
            try:
                self.wait()
            finally:
                self._lock.release()

    def _opened(self, call: str) -> None:
        if not self._lock.held:
            raise CheckpointError(
                f"Store.{call}: the store of {self.directory!r} is closed, or belongs to another "
                "process. Open the store in this process with open_store(checkpoint)."
            )


def open_store(checkpoint: Checkpoint | FilePath, group: Alone = ALONE) -> Store:
    """Creates the folder of a `Checkpoint`, locks it, and removes incomplete saves.

    Use the store in a `with` block, which waits for the last save and releases the lock.

    Args:
        group: the processes that save and restore together. Every process must then call `save`,
            `wait`, `restore` and `best` in the same order.

    Raises:
        CheckpointError: if another run uses the folder, the folder is not writable, or a process of
            the group does not see the folder.
        ImportError: if orbax is not installed.

    Example:
        >>> import tempfile
        >>> from fkeras.training.checkpoint import open_store
        >>> with tempfile.TemporaryDirectory() as folder, open_store(folder) as store:
        ...     print(store.restore({}))
        None
    """
    if not isinstance(checkpoint, Checkpoint):
        checkpoint = Checkpoint(checkpoint)
    # An absolute path, since a program may change its working folder during the training.
    directory = os.path.abspath(checkpoint.directory)
    if group.count > 1:
        directory, shared_lock, token = open_together(directory, group)
        # exchanges of its own for the thread that writes
        return Store(checkpoint, directory, shared_lock, group, group.channel(f"save-{token}"))
    load_orbax()
    return Store(checkpoint, directory, open_folder(directory))
