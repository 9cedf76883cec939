"""California housing: median prices in 20,640 districts in 1990."""

from __future__ import annotations

from fkeras.datasets.readers.location import dataset_file
from fkeras.datasets.readers.reading import read_npz
from fkeras.datasets.readers.rows import Pair, split
from fkeras.engine.config.converters import choice
from fkeras.engine.values.argument_types import FilePath

_URL = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/california_housing.npz"
_DIGEST = "1a2e3a52e0398de6463aebe6f4a8da34fb21fbb6b934cf88c3425e766f2a1a6f"
_VERSION = choice("large", "small")
_SMALL_COUNT = 600


def load_data(
    version: str = "large",
    path: FilePath = "california_housing.npz",
    test_split: float = 0.2,
    seed: int = 113,
    download: bool = False,
) -> tuple[Pair, Pair]:
    """Returns 8 attributes of California's districts, and median prices in dollars.

    Args:
        version: "large" for 20,640 districts, "small" for 600.
        path: path of the file, or its name in Keras's folder (`~/.keras/datasets`).
        test_split: fraction of the rows for the test.
        seed: seed of the shuffling.
        download: whether to download a missing file; its checksum is verified.

    Returns:
        `((x_train, y_train), (x_test, y_test))`: arrays of shape (n, 8) and (n,).

    Raises:
        FileNotFoundError: if the file is missing; the message gives its URL.
        FileError: for a damaged file.

    Example:
        >>> load_data(path="missing.npz")
        Traceback (most recent call last):
        ...
        FileNotFoundError: california_housing.load_data: expected the file ...
    """
    where = "california_housing.load_data"
    version = _VERSION.check(f"{where}: version", version)
    x, y = read_npz(dataset_file(where, path, _URL, _DIGEST, download), ("x", "y"))
    rows = slice(_SMALL_COUNT if version == "small" else None)
    return split(where, x[rows], y[rows], test_split, seed)


__all__ = ("load_data",)
