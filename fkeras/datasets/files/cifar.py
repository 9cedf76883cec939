"""Conversion of the batches in CIFAR's files to images and labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from fkeras.datasets.files.rows import Pair
from fkeras.engine.messages.errors import describe_value
from fkeras.saving.containers.errors import FileError

_PIXELS = 3 * 32 * 32


def images_and_labels(batch: dict[str, Any], key: str, path: str) -> Pair:
    """Returns the images (n, 32, 32, 3) and labels (n, 1) of a batch.

    Args:
        batch: the dictionary in a pickle; "data" has 1,024 red, green and blue bytes for each image.
        key: key of the labels.
        path: path of the archive, for messages.

    Raises:
        FileError: for other contents of the dictionary.
    """
    data: Any = batch.get("data")
    labels: Any = batch.get(key)
    has_images = (
        isinstance(data, np.ndarray) and data.shape[1:] == (_PIXELS,) and data.dtype == "u1"
    )
    has_labels = isinstance(labels, list) and all(type(n) is int and 0 <= n < 256 for n in labels)
    if not has_images or not has_labels or len(data) != len(labels):
        raise FileError(
            f"expected data as uint8 rows of {_PIXELS} bytes and {key} as a list of one number for each "
            f"row, received data {describe_value(data)} and {key} {describe_value(labels)}. Download "
            "the archive again.",
            file=path,
        )
    x = data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(x), np.asarray(labels, "uint8")[:, None]
