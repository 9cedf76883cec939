"""Order and split of a dataset's rows, and selection of words, as in Keras."""

from __future__ import annotations

from typing import Any

import numpy as np

from fkeras.engine.config.converters import integer, real

Pair = tuple[np.ndarray, np.ndarray]
_SPLIT = real(minimum=0, below=1, hint="Write 0.2 for one fifth of the rows.")
_SEED = integer(minimum=0, maximum=2**32 - 1)
_OPTIONAL_POSITIVE = integer(minimum=1, optional=True)
_OPTIONAL_FROM_ZERO = integer(minimum=0, optional=True)
_FROM_ZERO = integer(minimum=0)


def shuffle_rows(arrays: tuple[np.ndarray, ...], random: Any) -> tuple[np.ndarray, ...]:
    """Returns the rows of all arrays in the same random order.

    Args:
        random: a `numpy.random.RandomState`, whose order is Keras's.
    """
    order = np.arange(len(arrays[0]))
    random.shuffle(order)
    return tuple(array[order] for array in arrays)


def split(
    where: str, x: np.ndarray, y: np.ndarray, test_split: float, seed: int
) -> tuple[Pair, Pair]:
    """Shuffles rows and splits them into training and test rows."""
    test_fraction = check_test_split(where, test_split)
    x, y = shuffle_rows((x, y), np.random.RandomState(_SEED.check(f"{where}: seed", seed)))
    count = int(len(x) * (1 - test_fraction))
    return (x[:count], y[:count]), (x[count:], y[count:])


def check_test_split(where: str, test_split: float) -> float:
    """Checks and returns the fraction of the test rows."""
    return _SPLIT.check(f"{where}: test_split", test_split)


class WordRules:
    """Keras's rules for sequences of word numbers: start, offset, unknown words, maximum length.

    Args:
        Other arguments: those of `imdb.load_data`.
    """

    def __init__(
        self,
        where: str,
        num_words: int | None,
        skip_top: int,
        maxlen: int | None,
        seed: int,
        start_char: int | None,
        oov_char: int | None,
        index_from: int,
    ):
        self.where = where
        self.num_words = _OPTIONAL_POSITIVE.check(f"{where}: num_words", num_words)
        self.skip_top = _FROM_ZERO.check(f"{where}: skip_top", skip_top)
        self.maxlen = _OPTIONAL_POSITIVE.check(f"{where}: maxlen", maxlen)
        self.seed = _SEED.check(f"{where}: seed", seed)
        self.start_char = _OPTIONAL_FROM_ZERO.check(f"{where}: start_char", start_char)
        self.oov_char = _OPTIONAL_FROM_ZERO.check(f"{where}: oov_char", oov_char)
        self.index_from = _FROM_ZERO.check(f"{where}: index_from", index_from)

    def shift_and_select(self, rows: Any, labels: np.ndarray) -> tuple[list[list[int]], np.ndarray]:
        """Adds start and offset to the sequences, and leaves out long sequences with their labels."""
        start = [] if self.start_char is None else [self.start_char]
        rows = [[*start, *(word + self.index_from for word in row)] for row in rows]
        if self.maxlen is None:
            return rows, labels
        short_ids = [index for index, row in enumerate(rows) if len(row) < self.maxlen]
        if not short_ids:
            raise ValueError(
                f"{self.where}: maxlen: expected a number above the length of the shortest sequence, "
                f"{min(map(len, rows), default=0)}, received {self.maxlen}. Increase maxlen."
            )
        return [rows[index] for index in short_ids], labels[short_ids]

    def replace_unknown_words(self, rows: list[list[int]]) -> list[list[int]]:
        """Replaces or removes the numbers of unknown words."""
        # without `num_words` the largest number itself is unknown, as in Keras
        end = self.num_words or max((max(row, default=0) for row in rows), default=0)
        start, oov = self.skip_top, self.oov_char
        if oov is None:
            return [[word for word in row if start <= word < end] for row in rows]
        return [[word if start <= word < end else oov for word in row] for row in rows]


def object_array(rows: list[list[int]]) -> np.ndarray:
    """Returns lists of different lengths as an array of objects, as Keras does."""
    # filled one by one: `np.array(rows, object)` would convert equally long lists to a matrix
    objects = np.empty(len(rows), object)
    for index, row in enumerate(rows):
        objects[index] = row
    return objects
