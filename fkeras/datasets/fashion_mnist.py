"""Fashion-MNIST: 70,000 images of clothes in ten classes."""

from __future__ import annotations

import os

from fkeras.datasets.readers.location import dataset_file
from fkeras.datasets.readers.reading import read_idx
from fkeras.datasets.readers.rows import Pair
from fkeras.engine.values.argument_types import FilePath

_URL = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"
# names and MD5 checksums: the publisher of the data lists no other checksums
_FILES = (
    ("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
    ("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
    ("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
    ("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
)


def load_data(path: FilePath = "fashion-mnist", download: bool = False) -> tuple[Pair, Pair]:
    """Returns the images and labels of Fashion-MNIST.

    The classes are T-shirt, trouser, pullover, dress, coat, sandal, shirt, sneaker, bag and boot.

    Args:
        path: path of the folder with the four files, or its name in Keras's folder
            (`~/.keras/datasets`).
        download: whether to download missing files; their checksums are verified.

    Returns:
        `((x_train, y_train), (x_test, y_test))`: uint8 of shape (n, 28, 28) and (n,), 60,000
        training and 10,000 test images. License: MIT, Zalando SE.

    Raises:
        FileNotFoundError: if the file is missing; the message gives its URL.
        FileError: for a damaged file.

    Example:
        >>> load_data("missing")
        Traceback (most recent call last):
        ...
        FileNotFoundError: fashion_mnist.load_data: expected the file ...
    """
    where = "fashion_mnist.load_data"
    x_train, y_train, x_test, y_test = (
        read_idx(dataset_file(where, os.path.join(path, name), _URL + name, digest, download))
        for name, digest in _FILES
    )
    return (x_train, y_train), (x_test, y_test)


__all__ = ("load_data",)
