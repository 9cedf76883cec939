"""CIFAR-10: 60,000 color images in 10 classes."""

from __future__ import annotations

import numpy as np

from fkeras.datasets.files.cifar import images
from fkeras.datasets.files.places import find
from fkeras.datasets.files.reading import read_pickles
from fkeras.datasets.files.rows import Pair
from fkeras.engine.values.argument_types import FilePath

_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
_DIGEST = "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"
_NAMES = (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch")
# folder into which Keras unpacks the archive
_ALSO = ("cifar-10-batches-py-target/cifar-10-batches-py", "cifar-10-batches-py")


def load_data(
    path: FilePath = "cifar-10-python.tar.gz", download: bool = False
) -> tuple[Pair, Pair]:
    """Returns the images and labels of CIFAR-10.

    The pickles in the archive are read without running code of the file, and nothing is unpacked to
    the disk.

    Args:
        path: path of the archive or of the unpacked folder, or its name in Keras's folder
            (`~/.keras/datasets`).
        download: whether to download a missing file (checked by its checksum).

    Returns:
        `((x_train, y_train), (x_test, y_test))`: uint8 of shape (n, 32, 32, 3) and (n, 1), 50,000
        training and 10,000 test images.

    Raises:
        FileNotFoundError: for a missing file; the message has its address.
        FileError: for a damaged file.

    Example:
        >>> load_data(path="missing")
        Traceback (most recent call last):
        ...
        FileNotFoundError: cifar10.load_data: expected the file ...
    """
    where = "cifar10.load_data"
    place = find(where, path, _URL, _DIGEST, download, _ALSO)
    *batches, test = (images(batch, "labels", place) for batch in read_pickles(place, _NAMES))
    x, y = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    return (x, y), test


__all__ = ("load_data",)
