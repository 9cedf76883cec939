"""Creates and tests folders of callbacks before the first epoch."""

from __future__ import annotations

import os
import tempfile


def require_folder(where: str, argument: str, folder: str) -> None:
    """Creates a folder and tests that files can be written into the folder.

    Raises:
        OSError: if the folder cannot be created or written.
    """
    try:
        os.makedirs(folder or ".", exist_ok=True)
        # permissions do not show whether a write succeeds, for example on a read-only file system
        with tempfile.TemporaryFile(dir=folder or "."):
            pass
    except OSError as error:
        raise OSError(
            f"{where}: expected {argument} in a writable folder, but cannot write "
            f"to {folder or '.'!r}: {error.strerror or error}. Pass another {argument}."
        ) from error
