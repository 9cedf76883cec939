"""Exceptions of checkpoints."""

from __future__ import annotations

import errno
import os

#: full disk, exceeded quota, limit on the size of files
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class CheckpointError(RuntimeError):
    """Exception for a checkpoint that cannot be written or used, with the reason.

    Example:
        >>> from fkeras.training.checkpoint import CheckpointError
        >>> issubclass(CheckpointError, RuntimeError)
        True
    """


class BrokenSaveError(Exception):
    """Exception for a damaged save; the reader then tries an older save."""


class JointSaveError(Exception):
    """Exception of a save of several processes; every process of the group raises the same.

    Attributes:
        full: whether the disk of a process is full.
        newest: the step of the newest save that remains, or None.
    """

    def __init__(self, message: str, full: bool = False, newest: int | None = None):
        super().__init__(message)
        self.full, self.newest = full, newest


def is_disk_full(error: BaseException | None) -> bool:
    """Returns whether an error, or its cause, reports a full disk.

    The file library below orbax raises a `ValueError` that contains the system's message.
    """
    while error is not None:
        if isinstance(error, JointSaveError):
            return error.full
        if isinstance(error, OSError):
            if error.errno in _FULL:
                return True
        elif any(os.strerror(code) in str(error) for code in _FULL):
            return True
        error = error.__cause__ or error.__context__
    return False
