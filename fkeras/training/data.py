"""Host batches: arrays cut in an order that a key decides, the last batch filled up.

Every batch has the full size, so that one program serves all. The rows that fill up the last one
come from the beginning of the same order and count nowhere: not in the loss, not in a gradient,
not in a metric. In training a BatchNormalization sees them as it sees other rows of the epoch;
where rows are shuffled they are a random choice, so its statistics stay unbiased.

Several batches go to the device at once, as a chunk of shape (batches, rows, ...).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from fkeras.engine.frozen import is_array

#: how many batches a chunk has at most, and how many bytes
CHUNK, CHUNK_BYTES = 32, 1 << 22


def as_host(tree: Any, what: str) -> Any:
    """The tree with NumPy arrays for its leaves, in the dtypes that JAX computes in.

    Raises:
        TypeError: for leaves that are no arrays of numbers.
    """

    def convert(leaf: Any) -> np.ndarray:
        if not is_array(leaf):
            raise TypeError(
                f"{what}: expected arrays, received {type(leaf).__name__}. Convert it: "
                "np.asarray(x). Lists, tuples and dictionaries hold several inputs; batches of an "
                "iterator go to trainer.step(run, batch) one by one."
            )
        if isinstance(leaf, jax.core.Tracer):
            raise TypeError(
                f"{what}: expected arrays with numbers, received one that is being traced by a JAX "
                "transformation. Inside jit, grad or vmap use trainer.step(run, (x, y))."
            )
        array = np.asarray(leaf)
        if array.dtype.kind in "OUSMm" or array.dtype.names:
            raise TypeError(
                f"{what}: expected numbers, received an array of {array.dtype}. Encode it first, "
                "for example with ids of a vocabulary, or convert it: x.astype('float32')."
            )
        with np.errstate(over="ignore"):  # infinity is told by the check of finite numbers
            return array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)

    return jax.tree.map(convert, tree, is_leaf=_is_leaf)


def _is_leaf(value: Any) -> bool:
    return value is not None and not isinstance(value, Mapping | list | tuple)


def length(tree: Any) -> int:
    """The number of rows of the first array."""
    return jax.tree.leaves(tree)[0].shape[0]


def take(tree: Any, rows: Any) -> Any:
    """The rows of every array."""
    return jax.tree.map(lambda a: a[rows], tree)


def order_of(count: int, key: jax.Array | None, epoch: int) -> np.ndarray:
    """The order of the rows in an epoch, a function of key and epoch; by number without a key.

    Args:
        count: how many rows there are.
        key: a key or its data.
        epoch: the number of the epoch.

    Example:
        >>> order_of(3, None, 0)
        array([0, 1, 2])
    """
    if key is None:
        return np.arange(count)
    typed = jax.numpy.issubdtype(key.dtype, jax.dtypes.prng_key)
    words = np.asarray(jax.random.key_data(key) if typed else key).ravel()
    return np.random.default_rng([*map(int, words), epoch]).permutation(count)


@dataclasses.dataclass(frozen=True)
class Feed:
    """Arrays cut into batches.

    Attributes:
        tree: arrays with the same number of rows.
        size: the number of rows of a batch.
        steps: how many batches are taken.
        capacity: how many batches a chunk has room for; it follows from their bytes alone, so
            that data sets of other lengths share the program.

    Example:
        >>> feed = feed_of(np.arange(5), 2)
        >>> feed.steps, feed.counts(0, 3)
        (3, array([2, 2, 1], dtype=int32))
        >>> feed.chunk(np.arange(5), 2, 1)[0]
        array([4, 0])
    """

    tree: Any
    size: int
    steps: int
    capacity: int

    def __len__(self) -> int:
        return length(self.tree)

    def rows(self, steps: int) -> int:
        """How many rows the first batches have."""
        return min(steps * self.size, len(self))

    def counts(self, start: int, number: int) -> np.ndarray:
        """How many rows are real in each of `number` batches from batch `start` on."""
        left = len(self) - self.size * np.arange(start, start + number)
        return np.clip(left, 0, self.size).astype("int32")

    def chunk(self, order: np.ndarray, start: int, number: int) -> Any:
        """`number` batches in a chunk of full capacity; what is behind them has no meaning."""
        rows = np.arange(start * self.size, (start + number) * self.size)
        rows = order[rows % len(order)] if rows[-1] >= len(order) else order[rows[0] : rows[-1] + 1]
        room = self.capacity

        def gather(array: np.ndarray) -> np.ndarray:
            out = np.empty((room, self.size, *array.shape[1:]), array.dtype)
            flat = out.reshape(room * self.size, *array.shape[1:])
            np.take(array, rows, axis=0, out=flat[: len(rows)], mode="clip")
            return out

        return jax.tree.map(gather, self.tree)

    def batch(self, number: int) -> Any:
        """One batch, rows in their own order; the last one is filled up from the beginning."""
        start, stop = number * self.size, (number + 1) * self.size
        rows = slice(start, stop) if stop <= len(self) else np.arange(start, stop) % len(self)
        return take(self.tree, rows)


def feed_of(tree: Any, size: int, steps: int | None = None) -> Feed:
    """The feed of some arrays in batches of `size` rows, or of all rows where there are fewer."""
    count = length(tree)
    size = min(size, count)
    total = -(-count // size)
    row = sum(a[:1].nbytes for a in jax.tree.leaves(tree))
    most = max(CHUNK_BYTES // max(row * size, 1), 1)
    capacity = min(CHUNK, 1 << (most.bit_length() - 1))
    return Feed(tree, size, total if steps is None else min(steps, total), capacity)


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
