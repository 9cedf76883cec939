"""Padding of sequences of different lengths to one array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.typing import DTypeLike

from fkeras.engine.config.converters import choice, integer
from fkeras.engine.messages.errors import describe_value
from fkeras.engine.migration_hints.arguments import explains_arguments

_LENGTH = integer(minimum=1, optional=True)
_SIDE = choice("pre", "post")


@explains_arguments
def pad_sequences(
    sequences: Sequence[Any],
    maxlen: int | None = None,
    dtype: DTypeLike = "int32",
    padding: str = "pre",
    truncating: str = "pre",
    value: float | str = 0.0,
) -> np.ndarray:
    """Pads or truncates sequences to one length.

    Unlike Keras, the function rejects numbers that `dtype` cannot hold, such as 0.5 in an int32
    array: Keras converts 0.5 to 0.

    Args:
        sequences: n sequences; their elements are numbers, strings, or arrays of one shape.
        maxlen: length of each padded sequence; None for the length of the longest sequence.
        dtype: dtype of the result; `object` for strings of different lengths.
        padding: "pre" to pad before the sequence, "post" to pad after the sequence.
        truncating: "pre" to remove the beginning of long sequences, "post" to remove the end.
        value: element with which sequences are padded.

    Returns:
        A NumPy array of shape (n, maxlen, ...).

    Raises:
        ValueError: for arguments out of range, for elements of different shapes, and for elements
            that `dtype` cannot hold.

    Example:
        >>> pad_sequences([[1], [2, 3, 4]], maxlen=2)
        array([[0, 1],
               [3, 4]], dtype=int32)
    """
    length = _LENGTH.check("pad_sequences: maxlen", maxlen)
    padding = _SIDE.check("pad_sequences: padding", padding)
    truncating = _SIDE.check("pad_sequences: truncating", truncating)
    element_dtype = _check_dtype(dtype, value)
    rows = _as_arrays(sequences)
    if length is None:
        if not rows:
            raise ValueError(
                "pad_sequences: expected sequences, received none. Pass maxlen=..., since no "
                "sequence shows the length."
            )
        length = max(map(len, rows))
    shape = next((row.shape[1:] for row in rows if len(row)), ())
    padded = np.full(
        (len(rows), length, *shape),
        _cast_exactly(np.asarray(value), element_dtype, "value"),
        element_dtype,
    )
    for index, row in enumerate(rows):
        if len(row) == 0 or length == 0:
            continue
        if row.shape[1:] != shape:
            raise ValueError(
                f"pad_sequences: expected elements of shape {shape} as in the first sequence, "
                f"received {row.shape[1:]} in sequence {index}. Pad the inner sequences "
                "first."
            )
        part = _cast_exactly(
            row[-length:] if truncating == "pre" else row[:length],
            element_dtype,
            f"sequence {index}",
        )
        steps = slice(length - len(part), None) if padding == "pre" else slice(len(part))
        padded[index, steps] = part
    return padded


def _check_dtype(dtype: DTypeLike, value: float | str) -> np.dtype:
    try:
        element_dtype = np.dtype(dtype)
    except TypeError:
        raise ValueError(
            f"pad_sequences: expected a dtype such as 'int32', received {describe_value(dtype)}."
        ) from None
    if isinstance(value, str) and element_dtype.kind not in "OUS":
        raise ValueError(
            f"pad_sequences: expected a number as value for the dtype {element_dtype}, received "
            f"{value!r}. Write dtype=object for sequences of strings."
        )
    return element_dtype


def _as_arrays(sequences: Sequence[Any]) -> list[np.ndarray]:
    if isinstance(sequences, str | bytes | dict) or not hasattr(sequences, "__len__"):
        raise ValueError(
            "pad_sequences: expected a list of sequences, received "
            f"{describe_value(sequences)}. Write list(generator) for a generator."
        )
    rows = []
    for index, sequence in enumerate(sequences):
        if isinstance(sequence, str | bytes) or not hasattr(sequence, "__len__"):
            raise ValueError(
                f"pad_sequences: expected a sequence at position {index}, received "
                f"{describe_value(sequence)}. Put a single sequence into a list: [[1, 2]]."
            )
        try:
            rows.append(np.asarray(sequence))
        except ValueError:
            raise ValueError(
                f"pad_sequences: expected elements of one shape in sequence {index}, received "
                "elements of different lengths. Pad the inner sequences first."
            ) from None
    return rows


def _cast_exactly(array: np.ndarray, dtype: np.dtype, where: str) -> np.ndarray:
    """Casts an array; rejects numbers that an integer dtype cannot hold."""
    if dtype.kind in "OUS" or array.dtype.kind in "OUS":
        try:
            return array.astype(dtype)
        except (ValueError, TypeError):
            elements = describe_value(array.tolist())
            raise ValueError(
                f"pad_sequences: expected {dtype} in {where}, received {elements}. Write "
                "dtype=object for sequences of strings."
            ) from None
    with np.errstate(invalid="ignore", over="ignore"):
        converted = array.astype(dtype)
    # a cast to floats may round; a cast to integers must not drop fractions or overflow
    if dtype.kind in "iu" and (converted != array).any():
        raise ValueError(
            f"pad_sequences: expected numbers that {dtype} holds in {where}, received "
            f"{describe_value(array[converted != array].ravel()[0].item())}. Choose another dtype, "
            "such as dtype='float32'."
        )
    return converted
