"""Packing of sequences of different lengths into rows of one length, for the training of decoders."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fkeras.engine.config.converters import integer
from fkeras.engine.messages.errors import describe_value

_LENGTH = integer(minimum=2)
_INTEGER = integer()


class PackedSequences(NamedTuple):
    """Rows of several sequences, one behind the other.

    Attributes:
        ids: int32 (n, length): the sequences, 0 at padding.
        segments: int32 (n, length): 1, 2, ... for the sequences of a row, 0 at padding. A decoder that
            takes segments attends inside a sequence only and counts positions from its beginning.
        labels: int32 (n, length): for each id the next id of the same sequence, and the ignored class
            where there is none or where it is not to be learned.

    Example:
        >>> packed = pack_sequences([[5, 6, 7], [8, 9]], length=6)
        >>> packed.segments
        array([[1, 1, 1, 2, 2, 0]], dtype=int32)
    """

    ids: np.ndarray
    segments: np.ndarray
    labels: np.ndarray


def pack_sequences(
    sequences: Sequence[Any],
    length: int,
    masks: Sequence[Any] | None = None,
    ignore_class: int = -1,
) -> PackedSequences:
    """Packs sequences of ids into rows of one length, with segments and labels.

    Long sequences come first, and each goes into the fullest row that has room. A sequence that is longer
    than a row is cut into pieces, which are sequences of their own; the label at the end of a piece is the
    first id of the next piece. Train with `fk.losses.SparseCategoricalCrossentropy(from_logits=True,
    ignore_class=-1)`, whose mean is that of the labels that are not ignored.

    Args:
        sequences: lists or arrays of ids, each one document or conversation.
        length: the length of a row, at least 2.
        masks: for each id of each sequence, whether the id is to be learned: True at answers, such as
            the `mask` of `fk.pretrained.Answers`. None to learn all ids.
        ignore_class: the label of ids that are not to be learned.

    Returns:
        `ids`, `segments` and `labels`; see `PackedSequences`.

    Raises:
        ValueError: for sequences without ids, ids that are not integers, and masks of other lengths.

    Example:
        >>> packed = pack_sequences([[1, 2], [3, 4, 5]], 5, masks=[[False, True], [False, False, True]])
        >>> packed.ids
        array([[3, 4, 5, 1, 2]], dtype=int32)
        >>> packed.labels
        array([[-1,  5, -1,  2, -1]], dtype=int32)
    """
    length = _LENGTH.check("pack_sequences: length", length)
    ignore_class = _INTEGER.check("pack_sequences: ignore_class", ignore_class)
    pieces = _pieces(sequences, masks, length, ignore_class)
    rows: list[list[int]] = []
    room: list[tuple[int, int]] = []  # free places and number of each row, sorted
    for number in sorted(range(len(pieces)), key=lambda n: -len(pieces[n][0])):
        size = len(pieces[number][0])
        place = bisect.bisect_left(room, (size, -1))
        if place == len(room):
            rows.append([number])
            bisect.insort(room, (length - size, len(rows) - 1))
        else:
            free, row = room.pop(place)
            rows[row].append(number)
            bisect.insort(room, (free - size, row))
    shape = (len(rows), length)
    packed = PackedSequences(
        np.zeros(shape, np.int32), np.zeros(shape, np.int32), np.full(shape, ignore_class, np.int32)
    )
    for row, numbers in enumerate(rows):
        start = 0
        for segment, number in enumerate(numbers, 1):
            ids, labels = pieces[number]
            place = slice(start, start + len(ids))
            packed.ids[row, place], packed.labels[row, place] = ids, labels
            packed.segments[row, place] = segment
            start += len(ids)
    return packed


def _pieces(
    sequences: Sequence[Any], masks: Sequence[Any] | None, length: int, ignore_class: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns the ids and labels of each piece of at most `length` ids."""
    if masks is not None and len(masks) != len(sequences):
        raise ValueError(
            f"pack_sequences: expected a mask for each of {len(sequences)} sequences, received "
            f"{len(masks)}."
        )
    pieces = []
    for number, sequence in enumerate(sequences):
        ids = _array(sequence, number)
        learned = np.ones(len(ids), bool)
        if masks is not None:
            learned = np.asarray(masks[number])
            if learned.shape != ids.shape or learned.dtype != bool:
                raise ValueError(
                    f"pack_sequences, sequence {number}: expected a mask of {len(ids)} booleans, received "
                    f"{describe_value(masks[number])}."
                )
        labels = np.full(len(ids), ignore_class, np.int32)
        labels[:-1] = np.where(learned[1:], ids[1:], ignore_class)
        pieces += [
            (ids[start : start + length], labels[start : start + length])
            for start in range(0, len(ids), length)
        ]
    return pieces


def _array(sequence: Any, number: int) -> np.ndarray:
    array = np.asarray(sequence)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        raise ValueError(
            f"pack_sequences, sequence {number}: expected integers with one axis, received "
            f"{describe_value(sequence)}. Leave empty texts out, and encode texts first: "
            "tokenizer.encode(text)."
        )
    if array.min() < 0 or array.max() > np.iinfo(np.int32).max:
        raise ValueError(
            f"pack_sequences, sequence {number}: expected ids from 0, below 2**31, received "
            f"{array.min()} to {array.max()}. Cut padding off."
        )
    return array.astype(np.int32)
