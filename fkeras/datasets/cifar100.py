"""CIFAR-100: 60,000 color images in 100 classes."""

from __future__ import annotations

from fkeras.datasets.readers.location import dataset_file
from fkeras.datasets.readers.reading import images_and_labels, read_pickles
from fkeras.datasets.readers.rows import Pair
from fkeras.engine.config.converters import choice
from fkeras.engine.values.argument_types import FilePath

_URL = "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"
_DIGEST = "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7"
_FILE_NAMES = ("train", "test")
# folders in Keras's folder into which versions of Keras unpack the archive
_UNPACKED_FOLDERS = ("cifar-100-python-target/cifar-100-python", "cifar-100-python")
_MODE = choice("fine", "coarse")


def load_data(
    label_mode: str = "fine", path: FilePath = "cifar-100-python.tar.gz", download: bool = False
) -> tuple[Pair, Pair]:
    """Returns the images and labels of CIFAR-100.

    The archive is read in memory, and its pickles are read without running code of the file.

    Args:
        label_mode: "fine" for 100 classes, "coarse" for 20.
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
        FileNotFoundError: cifar100.load_data: expected the file ...
    """
    where = "cifar100.load_data"
    key = _MODE.check(f"{where}: label_mode", label_mode) + "_labels"
    file_path = dataset_file(where, path, _URL, _DIGEST, download, _UNPACKED_FOLDERS)
    train, test = (
        images_and_labels(batch, key, file_path) for batch in read_pickles(file_path, _FILE_NAMES)
    )
    return train, test


__all__ = ("load_data",)
