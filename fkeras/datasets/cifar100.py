"""CIFAR-100: 60,000 color images in 100 classes."""

from __future__ import annotations

from fkeras.datasets.files.cifar import images
from fkeras.datasets.files.places import find
from fkeras.datasets.files.reading import read_pickles
from fkeras.datasets.files.rows import Pair
from fkeras.engine.config.converters import choice
from fkeras.engine.values.argument_types import FilePath

_URL = "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"
_DIGEST = "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7"
_NAMES = ("train", "test")
# folder into which Keras unpacks the archive
_ALSO = ("cifar-100-python-target/cifar-100-python", "cifar-100-python")
_MODE = choice("fine", "coarse")


def load_data(
    label_mode: str = "fine", path: FilePath = "cifar-100-python.tar.gz", download: bool = False
) -> tuple[Pair, Pair]:
    """Returns the images and labels of CIFAR-100.

    The pickles in the archive are read without running code of the file, and nothing is unpacked to
    the disk.

    Args:
        label_mode: "fine" for 100 classes, "coarse" for 20.
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
        FileNotFoundError: cifar100.load_data: expected the file ...
    """
    where = "cifar100.load_data"
    key = _MODE.check(f"{where}: label_mode", label_mode) + "_labels"
    place = find(where, path, _URL, _DIGEST, download, _ALSO)
    train, test = (images(batch, key, place) for batch in read_pickles(place, _NAMES))
    return train, test


__all__ = ("load_data",)
