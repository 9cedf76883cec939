"""Sequences of different lengths as one array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.typing import DTypeLike

from fkeras.engine.config.converters import choice, integer
from fkeras.engine.messages.errors import describe_value

_LENGTH = integer(minimum=1, optional=True)
_SIDE = choice("pre", "post")


def pad_sequences(
    sequences: Sequence[Any],
    maxlen: int | None = None,
    dtype: DTypeLike = "int32",
    padding: str = "pre",
    truncating: str = "pre",
    value: Any = 0.0,
) -> np.ndarray:
    """Pads or truncates sequences to one length.

    Unlike Keras, the function rejects numbers that `dtype` cannot hold, such as 0.5 in an int32
    array: Keras rounds 0.5 to 0.

    Args:
        sequences: n sequences of numbers, strings or arrays of one shape.
        maxlen: the length of the result; None for the length of the longest sequence.
        dtype: dtype of the result; `object` for strings of different lengths.
        padding: "pre" to pad before the sequence, "post" to pad behind.
        truncating: "pre" to remove the beginning of long sequences, "post" to remove the end.
        value: the padding.

    Returns:
        A NumPy array of shape (n, maxlen, ...).

    Raises:
        ValueError: for arguments out of range, and for sequences that do not fit together or do
            not fit `dtype`.

    Example:
        >>> pad_sequences([[1], [2, 3, 4]], maxlen=2)
        array([[0, 1],
               [3, 4]], dtype=int32)
    """
    length = _LENGTH.check("pad_sequences: maxlen", maxlen)
    padding = _SIDE.check("pad_sequences: padding", padding)
    truncating = _SIDE.check("pad_sequences: truncating", truncating)
    kind = _dtype(dtype, value)
    rows = _rows(sequences)
    if length is None:
        if not rows:
            raise ValueError(
                "pad_sequences: expected sequences, received none. Give maxlen=..., since no "
                "sequence shows the length."
            )
        length = max(map(len, rows))
    shape = next((row.shape[1:] for row in rows if len(row)), ())
    padded = np.full((len(rows), length, *shape), _fitting(np.asarray(value), kind, "value"), kind)
    for place, row in enumerate(rows):
        if len(row) == 0 or length == 0:
            continue
        if row.shape[1:] != shape:
            raise ValueError(
                f"pad_sequences: expected elements of shape {shape} as in the first sequence, "
                f"received {row.shape[1:]} in sequence {place}. All elements need one shape."
            )
        part = _fitting(
            row[-length:] if truncating == "pre" else row[:length], kind, f"sequence {place}"
        )
        where = slice(length - len(part), None) if padding == "pre" else slice(len(part))
        padded[place, where] = part
    return padded


def _dtype(dtype: Any, value: Any) -> np.dtype:
    try:
        kind = np.dtype(dtype)
    except TypeError:
        raise ValueError(
            f"pad_sequences: expected a dtype such as 'int32', received {describe_value(dtype)}."
        ) from None
    if isinstance(value, str) and kind.kind not in "OUS":
        raise ValueError(
            f"pad_sequences: expected a number as value for the dtype {kind}, received {value!r}. "
            "Write dtype=object for sequences of strings."
        )
    return kind


def _rows(sequences: Any) -> list[np.ndarray]:
    if isinstance(sequences, str | bytes | dict) or not hasattr(sequences, "__len__"):
        raise ValueError(
            "pad_sequences: expected a list of sequences, received "
            f"{describe_value(sequences)}. Write list(generator) for a generator."
        )
    rows = []
    for place, sequence in enumerate(sequences):
        if isinstance(sequence, str | bytes) or not hasattr(sequence, "__len__"):
            raise ValueError(
                f"pad_sequences: expected a sequence at position {place}, received "
                f"{describe_value(sequence)}. A single sequence is a list of one: [[1, 2]]."
            )
        try:
            rows.append(np.asarray(sequence))
        except ValueError:
            raise ValueError(
                f"pad_sequences: expected elements of one shape in sequence {place}, received "
                "elements of different lengths. Pad the inner sequences first."
            ) from None
    return rows


def _fitting(array: np.ndarray, dtype: np.dtype, where: str) -> np.ndarray:
    """Returns the array with a dtype; rejects values that the dtype changes."""
    if dtype.kind in "OUS" or array.dtype.kind in "OUS":
        try:
            return array.astype(dtype)
        except (ValueError, TypeError):
            shown = describe_value(array.tolist())
            raise ValueError(
                f"pad_sequences: expected {dtype} in {where}, received {shown}. Write "
                "dtype=object for sequences of strings."
            ) from None
    with np.errstate(invalid="ignore", over="ignore"):
        converted = array.astype(dtype)
    # floats may lose digits, but integers must not lose fractions or overflow
    if dtype.kind in "iu" and (converted != array).any():
        raise ValueError(
            f"pad_sequences: expected numbers that {dtype} holds in {where}, received "
            f"{describe_value(array[converted != array].ravel()[0].item())}. Write dtype='float32', "
            "or another dtype."
        )
    return converted
