"""What goes wrong with checkpoints."""

from __future__ import annotations

import errno
import os

#: no room on the disk, a quota, a limit on the size of files
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be written or used; the message says which and why.

    Example:
        >>> from fkeras.training.checkpoint import CheckpointError
        >>> issubclass(CheckpointError, RuntimeError)
        True
    """


class BrokenSaveError(Exception):
    """A save that is not whole; another one may be."""


def is_disk_full(error: BaseException | None) -> bool:
    """Whether an error, or what caused it, says that there is no room left.

    The file library under orbax raises a ValueError with the system's own words in it.

    Example:
        >>> is_disk_full(OSError(errno.ENOSPC, "no room")), is_disk_full(ValueError("no"))
        (True, False)
    """
    while error is not None:
        if isinstance(error, OSError):
            if error.errno in _FULL:
                return True
        elif any(os.strerror(code) in str(error) for code in _FULL):
            return True
        error = error.__cause__ or error.__context__
    return False
