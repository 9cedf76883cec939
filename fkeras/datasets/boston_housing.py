"""Boston housing: median prices in 506 districts."""

from __future__ import annotations

import numpy as np

from fkeras.datasets.readers.location import dataset_file, mlxtend_file
from fkeras.datasets.readers.reading import read_npz
from fkeras.datasets.readers.rows import Pair, split
from fkeras.engine.values.argument_types import FilePath

_URL = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/boston_housing.npz"
_DIGEST = "f553886a1f8d56431e820c5b82552d9d95cfcb96d1e678153f8839538947dff5"


def load_data(
    path: FilePath = "boston_housing.npz",
    test_split: float = 0.2,
    seed: int = 113,
    download: bool = False,
    source: str = "file",
) -> tuple[Pair, Pair]:
    """Returns 13 attributes of Boston's districts in the 1970s, and median prices in 1,000 dollars.

    One attribute, "B", was derived from the share of Black people under the assumption that
    segregation influences prices. Prefer `california_housing`.

    Args:
        path: path of the file, or its name in Keras's folder (`~/.keras/datasets`).
        test_split: fraction of the rows for the test.
        seed: seed of the shuffling.
        download: whether to download a missing file; its checksum is verified.
        source: "file", or "mlxtend" for the copy in the package mlxtend.

    Returns:
        `((x_train, y_train), (x_test, y_test))`: float64 of shape (n, 13) and (n,).

    Raises:
        FileNotFoundError: if the file is missing; the message gives its URL.
        FileError: for a damaged file.
        ImportError: if `source` is "mlxtend" and the package is missing.

    Example:
        >>> (x_train, y_train), _ = load_data(source="mlxtend")
        >>> x_train.shape, float(y_train[0])
        ((404, 13), 15.2)
    """
    where = "boston_housing.load_data"
    csv_path = mlxtend_file(where, source, "boston_housing.csv")
    if csv_path is not None:
        rows = np.loadtxt(csv_path, delimiter=",")
        return split(where, rows[:, :-1], rows[:, -1], test_split, seed)
    x, y = read_npz(dataset_file(where, path, _URL, _DIGEST, download), ("x", "y"))
    return split(where, x, y, test_split, seed)


__all__ = ("load_data",)
