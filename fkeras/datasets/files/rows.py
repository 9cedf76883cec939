"""Training and test rows of a dataset: Keras's order and its rules for words."""

from __future__ import annotations

from typing import Any

import numpy as np

from fkeras.engine.config.converters import integer, real

Pair = tuple[np.ndarray, np.ndarray]
_SPLIT = real(minimum=0, below=1, hint="It is the share of the test rows: 0.2 is one fifth.")
_SEED = integer(minimum=0, maximum=2**32 - 1)
_COUNT = integer(minimum=1, optional=True)
_WORD = integer(minimum=0, optional=True)
_SHIFT = integer(minimum=0)


def shuffled(arrays: tuple[np.ndarray, ...], random: Any) -> tuple[np.ndarray, ...]:
    """Returns the rows of all arrays in one new order.

    Args:
        arrays: arrays with the same number of rows.
        random: a `numpy.random.RandomState`, whose order is Keras's.
    """
    order = np.arange(len(arrays[0]))
    random.shuffle(order)
    return tuple(array[order] for array in arrays)


def split(
    where: str, x: np.ndarray, y: np.ndarray, test_split: float, seed: int
) -> tuple[Pair, Pair]:
    """Shuffles rows and splits them into training and test rows.

    Args:
        where: name of the function, for messages.
        x: the inputs.
        y: the targets.
        test_split: the share of the test rows.
        seed: seed of the order.
    """
    share = share_of(where, test_split)
    x, y = shuffled((x, y), np.random.RandomState(_SEED.check(f"{where}: seed", seed)))
    count = int(len(x) * (1 - share))
    return (x[:count], y[:count]), (x[count:], y[count:])


def share_of(where: str, test_split: float) -> float:
    """Checks the share of the test rows.

    Args:
        where: name of the function, for messages.
        test_split: a number from 0, below 1.
    """
    return _SPLIT.check(f"{where}: test_split", test_split)


class WordRules:
    """Selects and numbers the words of sequences.

    Args:
        where: name of the function, for messages.
        num_words: words with this number or a larger one are unknown; None for no limit.
        skip_top: words with a smaller number are unknown.
        maxlen: sequences of this length or a larger one are left out; None for no limit.
        seed: seed of the order.
        start_char: number at the start of each sequence, or None.
        oov_char: number of unknown words; None to leave unknown words out.
        index_from: number that is added to each word.
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
        self.num_words = _COUNT.check(f"{where}: num_words", num_words)
        self.skip_top = _SHIFT.check(f"{where}: skip_top", skip_top)
        self.maxlen = _COUNT.check(f"{where}: maxlen", maxlen)
        self.seed = _SEED.check(f"{where}: seed", seed)
        self.start_char = _WORD.check(f"{where}: start_char", start_char)
        self.oov_char = _WORD.check(f"{where}: oov_char", oov_char)
        self.index_from = _SHIFT.check(f"{where}: index_from", index_from)

    def numbered(self, rows: Any, labels: np.ndarray) -> tuple[list[list[int]], np.ndarray]:
        """Returns the sequences with a start and shifted words, without long sequences."""
        start = [] if self.start_char is None else [self.start_char]
        rows = [[*start, *(word + self.index_from for word in row)] for row in rows]
        if self.maxlen is None:
            return rows, labels
        positions = [place for place, row in enumerate(rows) if len(row) < self.maxlen]
        if not positions:
            raise ValueError(
                f"{self.where}: maxlen: expected a number above the shortest sequence of "
                f"{min(map(len, rows), default=0)} words, received {self.maxlen}, which leaves no "
                "sequence. Raise maxlen."
            )
        return [rows[place] for place in positions], labels[positions]

    def with_unknown_words(self, rows: list[list[int]]) -> list[list[int]]:
        """Returns the sequences with unknown words replaced or left out."""
        # without a limit the largest number counts as unknown, as in Keras
        most = self.num_words or max((max(row, default=0) for row in rows), default=0)
        least, oov = self.skip_top, self.oov_char
        if oov is None:
            return [[word for word in row if least <= word < most] for row in rows]
        return [[word if least <= word < most else oov for word in row] for row in rows]


def as_objects(rows: list[list[int]]) -> np.ndarray:
    """Returns lists of different lengths as an array of objects."""
    objects = np.empty(len(rows), object)
    for place, row in enumerate(rows):
        objects[place] = row
    return objects
