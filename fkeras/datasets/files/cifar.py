"""The form of the CIFAR files."""

from __future__ import annotations

from typing import Any

import numpy as np

from fkeras.datasets.files.rows import Pair
from fkeras.saving.containers.errors import FileError

_PIXELS = 3 * 32 * 32


def images(batch: dict[str, Any], key: str, path: str) -> Pair:
    """Returns the images (n, 32, 32, 3) and labels (n, 1) of a batch.

    Args:
        batch: the pickled dictionary.
        key: key of the labels.
        path: path of the archive, for messages.

    Raises:
        FileError: for a dictionary of another form.
    """
    data: Any = batch.get("data")
    labels: Any = batch.get(key)
    fits = isinstance(data, np.ndarray) and data.shape[1:] == (_PIXELS,) and data.dtype == "u1"
    numbers = isinstance(labels, list) and all(type(n) is int and 0 <= n < 256 for n in labels)
    if not fits or not numbers or len(data) != len(labels):
        raise FileError(
            f"expected images of {_PIXELS} bytes and {key} as a list of numbers, received another "
            "content. Download the archive again.",
            file=path,
        )
    x = data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(x), np.asarray(labels, "uint8")[:, None]
