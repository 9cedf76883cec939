"""Writes and reads arrays by name with orbax; each of several processes can write a folder.

The module uses orbax's handler for arrays without orbax's checkpointers, which create, commit and
delete folders by other rules; here one rename publishes a save with all its files. The arrays are
not compressed: compression saves 8 % for random bits, and writing takes five times as long.
`orbax.checkpoint.PyTreeCheckpointer().restore(".../arrays")` reads the arrays, too.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fkeras.engine.messages.optional_packages import missing_package


def load_orbax() -> Any:
    """Imports and returns the package orbax.checkpoint.

    Raises:
        ImportError: if orbax is not installed.
    """
    # Imported late: orbax is an optional package.
    try:
        import orbax.checkpoint as orbax
    except ImportError as error:
        raise missing_package("checkpoint", "orbax.checkpoint", error) from error
    return orbax


def write_arrays(folder: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays of this process into a new folder; empty arrays need no file.

    The function waits for no other process.
    """
    orbax, path = load_orbax(), _path(folder)
    path.mkdir()
    # Orbax's storage format rejects arrays without elements.
    nonempty = {name: array for name, array in arrays.items() if array.size}
    if not nonempty:
        return
    with _quiet():
        handler = orbax.PyTreeCheckpointHandler(
            use_compression=False,
            type_handler_registry=orbax.type_handlers.create_type_handler_registry(
                (np.ndarray, _own_type_handler(orbax))
            ),
            # every process writes the tree's structure, for its own folder
            multiprocessing_options=orbax.options.MultiprocessingOptions(primary_host=None),
        )
        handler.save(path, args=orbax.args.PyTreeSave(nonempty))
        handler.close()


def _own_type_handler(orbax: Any) -> Any:
    """Returns orbax's handler of NumPy arrays, changed to write in every process and to wait.

    Orbax's own handler writes in process 0 only: it takes NumPy arrays as copies of one array. Its
    writes also outlive a failed save, and report to an event loop that is closed by then.
    """
    import tensorstore  # orbax's storage library

    # the caller flushes all files of a save to disk, once
    context = tensorstore.Context({"file_io_sync": False})

    def create(array: np.ndarray, info: Any) -> Any:
        base = {"driver": "file", "path": f"{info.parent_dir}/"}
        return tensorstore.open(
            {
                "driver": "zarr",
                "kvstore": {"driver": "ocdbt", "base": base, "path": info.name},
                "metadata": {"shape": array.shape, "chunks": array.shape, "compressor": None},
                "dtype": array.dtype.name,
                # some versions of orbax take missing data for damage
                "store_data_equal_to_fill_value": True,
            },
            create=True,
            context=context,
        )

    class Handler(orbax.type_handlers.NumpyHandler):
        async def serialize(self, values: Any, infos: Any, args: Any = None) -> Any:
            # Tensorstore's own threads work; to wait in the event loop would take longer.
            stores = [new.result() for new in list(map(create, values, infos))]
            writes = [
                store.write(array, can_reference_source_data_indefinitely=True)
                for store, array in zip(stores, values, strict=True)
            ]
            for write in writes:
                write.result()
            return []  # nothing to wait for

    return Handler()


def read_arrays(folder: str, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Reads these arrays from a folder of `write_arrays`."""
    orbax = load_orbax()
    restore_options = {name: orbax.RestoreArgs(restore_type=np.ndarray) for name in names}
    with _quiet():
        handler = orbax.PyTreeCheckpointHandler(use_compression=False)
        arrays = handler.restore(
            _path(folder),
            args=orbax.args.PyTreeRestore(
                item=dict.fromkeys(names, 0), restore_args=restore_options, partial_restore=True
            ),
        )
        handler.close()
    return arrays


def _path(folder: str) -> Any:
    from etils import epath  # orbax's own paths

    return epath.Path(folder)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppresses the log messages of orbax: errors are raised, and reported once."""
    logger = logging.getLogger("absl")

    def allow(record: logging.LogRecord) -> bool:
        return "orbax" not in record.pathname

    logger.addFilter(allow)
    try:
        yield
    finally:
        logger.removeFilter(allow)
