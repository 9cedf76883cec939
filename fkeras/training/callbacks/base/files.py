"""Folders that callbacks write into: made and tried before the first epoch."""

from __future__ import annotations

import os
import tempfile


def require_folder(where: str, argument: str, folder: str) -> None:
    """Makes a folder and raises where nothing can be written into it.

    Args:
        where: the callback, for the message.
        argument: its argument that names the folder.
        folder: the folder.

    Raises:
        OSError: where it cannot be made or written into.
    """
    try:
        os.makedirs(folder or ".", exist_ok=True)
        with tempfile.TemporaryFile(dir=folder or "."):
            pass
    except OSError as error:
        raise OSError(
            f"{where}: expected {argument} as a folder that can be written into, and "
            f"{folder or '.'!r} cannot: {error.strerror or error}. Give another {argument}."
        ) from error
