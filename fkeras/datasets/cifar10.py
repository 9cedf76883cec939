"""CIFAR-10: 60,000 color images in 10 classes."""

from __future__ import annotations

import numpy as np

from fkeras.datasets.readers.location import dataset_file
from fkeras.datasets.readers.reading import images_and_labels, read_pickles
from fkeras.datasets.readers.rows import Pair
from fkeras.engine.values.argument_types import FilePath

_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
_DIGEST = "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"
_FILE_NAMES = (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch")
# folders in Keras's folder into which versions of Keras unpack the archive
_UNPACKED_FOLDERS = ("cifar-10-batches-py-target/cifar-10-batches-py", "cifar-10-batches-py")


def load_data(
    path: FilePath = "cifar-10-python.tar.gz", download: bool = False
) -> tuple[Pair, Pair]:
    """Returns the images and labels of CIFAR-10.

    The archive is read in memory, and its pickles are read without running code of the file.

    Args:
        path: path of the archive or of the unpacked folder, or its name in Keras's folder
            (`~/.keras/datasets`).
        download: whether to download a missing file; its checksum is verified.

    Returns:
        `((x_train, y_train), (x_test, y_test))`: uint8 of shape (n, 32, 32, 3) and (n, 1), 50,000
        training and 10,000 test images.

    Raises:
        FileNotFoundError: if the file is missing; the message gives its URL.
        FileError: for a damaged file.

    Example:
        >>> load_data(path="missing")
        Traceback (most recent call last):
        ...
        FileNotFoundError: cifar10.load_data: expected the file ...
    """
    where = "cifar10.load_data"
    file_path = dataset_file(where, path, _URL, _DIGEST, download, _UNPACKED_FOLDERS)
    *batches, test = (
        images_and_labels(batch, "labels", file_path)
        for batch in read_pickles(file_path, _FILE_NAMES)
    )
    x, y = (np.concatenate(arrays) for arrays in zip(*batches, strict=True))
    return (x, y), test


__all__ = ("load_data",)
