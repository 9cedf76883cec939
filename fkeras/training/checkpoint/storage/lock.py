"""Locks a folder for one run at a time.

The lock is a kernel lock (`flock`) on an open file: the lock ends with the process, even if the
process is killed; the contents of the file are for people. A forked child would inherit the lock
and could outlive this process, so a child closes the file at once.

On systems or file systems without kernel locks, the existence of a file is the lock. A killed run
then leaves the file behind, and a person has to remove it.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import time
import weakref
from typing import Any, BinaryIO

from fkeras.training.checkpoint.storage.errors import CheckpointError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


class Lock:
    """Holds the lock of a folder from its construction until `release`.

    Raises:
        CheckpointError: if another run holds the lock, with that run's process and host.
    """

    _file: BinaryIO | None = None
    _alone: str | None = None

    def __init__(self, directory: str):
        self.directory = directory
        if not self._take():
            self._create_lock_file()
        if hasattr(os, "register_at_fork"):
            # `register_at_fork` has no inverse: a weak reference lets the lock be collected.
            forget = weakref.WeakMethod(self._leave)
            os.register_at_fork(after_in_child=lambda: (forget() or bool)())

    def __del__(self) -> None:
        self._leave()  # an interrupt may arrive before the caller holds a reference to the lock

    @property
    def held(self) -> bool:
        """Whether this process still holds the lock."""
        return self._file is not None or self._alone is not None

    def _take(self) -> bool:
        """Takes the kernel lock; returns False if the system has no kernel locks."""
        if fcntl is None:
            return False
        path = os.path.join(self.directory, "lock")
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            with file:
                holder = _read(file)
            if error.errno in _NO_LOCKS:
                return False
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise CheckpointError(_locked_message(self.directory, holder)) from None
            raise
        file.truncate(0)
        file.write(_description())
        self._file = file
        return True

    def _create_lock_file(self) -> None:
        path = os.path.join(self.directory, "lock.alone")
        # Mode "x" fails if the file exists: the check and the creation are one atomic operation.
        try:
            with open(path, "xb") as file:
                file.write(_description())
        except FileExistsError:
            with open(path, "rb") as other:
                holder = _read(other)
            raise CheckpointError(
                _locked_message(self.directory, holder)
                + f" If that process no longer runs, remove {path}: this file system has no locks "
                "that end with their process."
            ) from None
        self._alone = path

    def _leave(self) -> None:
        """Forgets the lock without releasing it, as a forked child must."""
        if self._file is not None:
            self._file.close()
        self._file = self._alone = None

    def release(self) -> None:
        """Releases the lock; the file of a kernel lock stays.

        Removing the file would let two runs in: one with a lock on the removed file, one on a new
        file.
        """
        if self._file is not None:
            self._file.truncate(0)
        if self._alone is not None:
            os.remove(self._alone)
        self._leave()


class SharedLock:
    """Stands for the lock that process 0 of a group holds, in the other processes."""

    def __init__(self) -> None:
        self._process: int | None = os.getpid()

    @property
    def held(self) -> bool:
        """Whether the lock is not released; a forked child does not hold the lock."""
        return self._process == os.getpid()

    def release(self) -> None:
        """Ends the use of the lock in this process."""
        self._process = None


def _description() -> bytes:
    facts = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
    }
    return json.dumps(facts).encode()


def _read(file: BinaryIO) -> dict[str, Any]:
    try:
        holder = json.loads(file.read(4096))
    except ValueError:
        holder = None  # the other run is writing the file at this moment
    return holder if isinstance(holder, dict) else {}


def _locked_message(directory: str, holder: dict[str, Any]) -> str:
    owner = "another process"
    if holder:
        owner = f"process {holder.get('pid')} on {holder.get('host')} since {holder.get('since')}"
    return (
        f"Checkpoint {directory!r}: expected a folder without another run, but {owner} writes "
        "there. Wait for that process to end, or choose another folder; restore(directory, like) "
        "reads without the lock."
    )
