"""Arrays by name, to files and back, by orbax.

Of orbax this uses the handler that writes arrays, without its checkpointers: those make a folder,
commit and collect by rules of their own, and this package's folder is published by one rename.
The arrays are not compressed: random bits gain 8 %, and writing takes five times as long.
`orbax.checkpoint.PyTreeCheckpointer().restore(".../arrays")` reads them too.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fkeras.engine.messages.optional_packages import missing_package


def load_orbax() -> Any:
    """The package orbax.checkpoint.

    Raises:
        ImportError: where it is not installed.
    """
    try:
        import orbax.checkpoint as orbax
    except ImportError as error:
        raise missing_package("checkpoint", "orbax.checkpoint", error) from error
    return orbax


def write_arrays(folder: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays into a folder that does not exist; one without entries needs no file.

    Args:
        folder: where; it is made.
        arrays: NumPy arrays by name.
    """
    orbax, path = load_orbax(), _path(folder)
    path.mkdir()
    filled = {name: array for name, array in arrays.items() if array.size}
    if filled:
        with _quiet():
            handler = orbax.PyTreeCheckpointHandler(use_compression=False)
            handler.save(path, args=orbax.args.PyTreeSave(filled))
            handler.finalize(path)
            handler.close()


def read_arrays(folder: str, names: Sequence[str]) -> dict[str, np.ndarray]:
    """The arrays of these names out of a folder that `write_arrays` made."""
    orbax = load_orbax()
    if not names:
        return {}
    kinds = {name: orbax.RestoreArgs(restore_type=np.ndarray) for name in names}
    with _quiet():
        handler = orbax.PyTreeCheckpointHandler(use_compression=False)
        found = handler.restore(_path(folder), args=orbax.args.PyTreeRestore(restore_args=kinds))
        handler.close()
    return found


def _path(folder: str) -> Any:
    from etils import epath  # orbax's own paths

    return epath.Path(folder)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps what orbax logs off the screen: an error is raised, and told once."""
    logger = logging.getLogger("absl")

    def allow(record: logging.LogRecord) -> bool:
        return "orbax" not in record.pathname

    logger.addFilter(allow)
    try:
        yield
    finally:
        logger.removeFilter(allow)
