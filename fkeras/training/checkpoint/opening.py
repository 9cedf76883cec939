"""Opens the folder of the checkpoints for writing, in one process or together with others."""

from __future__ import annotations

import os
import uuid

import jax

from fkeras.host.processes.alone import Alone
from fkeras.training.checkpoint.storage import disk
from fkeras.training.checkpoint.storage.errors import CheckpointError
from fkeras.training.checkpoint.storage.lock import Lock, SharedLock
from fkeras.training.checkpoint.storage.orbax_files import load_orbax
from fkeras.training.checkpoint.storage.shared_failure import do_together
from fkeras.training.checkpoint.storage.writing import BEST, LATEST, PARTIAL


def open_folder(directory: str) -> Lock:
    """Creates a folder, locks it, and removes incomplete saves.

    Raises:
        CheckpointError: if another run uses the folder, or the folder is not writable.
    """
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
        return lock
    except BaseException as error:
        lock.release()
        if isinstance(error, OSError):
            raise CheckpointError(_unusable(directory, error)) from error
        raise


def open_together(directory: str, group: Alone) -> tuple[str, Lock | SharedLock, str]:
    """Opens a folder in all processes of a group; process 0 holds the lock.

    Args:
        directory: the absolute path; the path of process 0 counts.

    Returns:
        The path of process 0, the lock, and a text that is new with each call; path and text are
        the same in all processes.

    Raises:
        CheckpointError: in every process: if another run uses the folder, if the folder is not
            writable, or if a process does not see the folder of process 0.
    """
    lock: Lock | SharedLock = SharedLock()
    token = uuid.uuid4().hex

    def open_first() -> list[str] | None:
        nonlocal lock
        load_orbax()
        if not group.leads:
            return None
        lock = open_folder(directory)
        with open(_token_path(directory, token), "w", encoding="utf-8") as file:
            file.write(token)
        return [directory, token]

    try:
        directory, token = do_together(group, "the checkpoint's folder", open_first)[0]
        do_together(group, "a file in the checkpoint's folder", lambda: _check(directory, token))
        if group.leads:
            os.remove(_token_path(directory, token))
    except BaseException:
        lock.release()
        raise
    return directory, lock, token


def _token_path(directory: str, token: str) -> str:
    return os.path.join(directory, PARTIAL, f"token-{token}")


def _check(directory: str, token: str) -> None:
    """Raises an error if this process does not see the file of process 0."""
    try:
        with open(_token_path(directory, token), encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        text, reason = None, f" ({error.strerror or error})"
    else:
        reason = ""
    if text != token:
        raise CheckpointError(
            f"Checkpoint {directory!r}: expected a folder on a file system that all processes "
            f"share, but process {jax.process_index()} does not see the files of process 0"
            f"{reason}. Choose a shared folder."
        )
    # the files of a process must be readable and writable for process 0, too
    if not os.access(os.path.join(directory, PARTIAL), os.W_OK):
        raise CheckpointError(
            f"Checkpoint {directory!r}: expected a writable folder, but process "
            f"{jax.process_index()} cannot write there. Choose another directory."
        )


def _unusable(directory: str, error: OSError) -> str:
    return (
        f"Checkpoint: expected a writable folder, but {directory!r} is not writable: "
        f"{error.strerror or error}. Choose another directory."
    )
