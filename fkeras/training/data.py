"""Host batches: arrays cut in an order that a key decides, the last batch filled up.

Every batch has the full size, so that one program serves all. The rows that fill up the last one
come from elsewhere in the data and count nowhere: not in the loss, not in a gradient, not in a
metric. In training a BatchNormalization sees them as it sees other rows of the epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from fkeras.engine.frozen import is_array


def as_host(tree: Any, what: str) -> Any:
    """The tree with NumPy arrays for its leaves.

    Raises:
        TypeError: for leaves that are no arrays of numbers.
    """

    def convert(leaf: Any) -> np.ndarray:
        if not is_array(leaf):
            raise TypeError(
                f"{what}: expected arrays, received {type(leaf).__name__}. Convert it: "
                "np.asarray(x). Lists, tuples and dictionaries hold several inputs."
            )
        array = np.asarray(leaf)
        if array.dtype.kind in "OUSV" and array.dtype.name != "bfloat16":
            raise TypeError(
                f"{what}: expected numbers, received an array of {array.dtype}. Encode it first, "
                "for example with ids of a vocabulary."
            )
        return array

    return jax.tree.map(convert, tree)


def length(tree: Any) -> int:
    """The number of rows of the first array."""
    return jax.tree.leaves(tree)[0].shape[0]


def take(tree: Any, rows: Any) -> Any:
    """The rows of every array."""
    return jax.tree.map(lambda a: a[rows], tree)


def order_of(count: int, key: jax.Array | None, epoch: int) -> np.ndarray:
    """The order of the rows in an epoch, a function of key and epoch; by number without a key."""
    if key is None:
        return np.arange(count)
    words = np.asarray(jax.random.key_data(key)).ravel()
    return np.random.default_rng([*map(int, words), epoch]).permutation(count)


def batches(
    tree: Any, size: int, order: np.ndarray | None = None, steps: int | None = None
) -> Iterator[tuple[Any, np.ndarray]]:
    """`(batch, valid)`: full batches, and which of their rows are real.

    Args:
        tree: arrays with the same number of rows.
        size: the number of rows of a batch.
        order: the rows' order; as they stand where it is None.
        steps: how many batches at most.
    """
    count = length(tree)
    total = -(-count // size)
    everything = np.ones(size, bool)
    for number in range(total if steps is None else min(steps, total)):
        start = number * size
        if start + size <= count:
            rows = slice(start, start + size) if order is None else order[start : start + size]
            yield take(tree, rows), everything
            continue
        rows = np.arange(start, start + size) % count
        yield take(tree, rows if order is None else order[rows]), np.arange(size) < count - start


def split(tree: Any, fraction: float) -> tuple[Any, Any]:
    """The first rows, and the last `fraction` of them."""
    count = length(tree)
    cut = int(count * (1 - fraction))
    if not 0 < cut < count:
        raise ValueError(
            f"validation_split: {fraction} of {count} rows leaves nothing on one side. Choose a "
            "share between 0 and 1, or pass validation_data=(x, y)."
        )
    return take(tree, slice(0, cut)), take(tree, slice(cut, None))
