"""Conversion of the user's strings to NumPy arrays of strings, without loss.

NumPy converts a list of words with numbers or missing values in silence: `np.asarray(["a", nan])` holds
the word "nan". Entry points for strings therefore convert lists with this module.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fkeras.engine.messages.errors import describe_value
from fkeras.engine.values.annotations import Leaf


def listed_texts(value: Leaf, where: str) -> np.ndarray:
    """Returns a list, or nested lists, of strings as an array; other lists as NumPy converts them.

    Raises:
        ValueError: for rows of different lengths.

    Example:
        >>> listed_texts(["a", None], "x")
        array(['a', None], dtype=object)
    """
    try:
        array = np.asarray(value)
    except ValueError:
        raise ValueError(
            f"{where}: expected rows of one length, received a list of rows of different "
            "lengths. Pad the shorter ones, with the mask token for example."
        ) from None
    if array.dtype.kind not in "SU":
        return array
    # a word such as "nan" may have been a number or a missing value before the conversion
    objects = np.array(value, object)
    same = all(isinstance(element, str | bytes) for element in objects.ravel().tolist())
    return array if same else objects


def check_texts(texts: Sequence[object], shape: tuple[int, ...], where: str) -> None:
    """Rejects elements that are no strings; the message names the first row and counts them.

    Args:
        texts: the elements of an array, in order.
        shape: the shape of the array.

    Raises:
        ValueError: for a missing value (None, NaN or `pandas.NA`).
        TypeError: for another value.

    Example:
        >>> check_texts(["a", "b"], (2,), "x")
    """
    wrong = [index for index, text in enumerate(texts) if not isinstance(text, str | bytes)]
    if not wrong:
        return
    value = texts[wrong[0]]
    row = f", row {int(np.unravel_index(wrong[0], shape)[0])}" if shape else ""
    missing = [index for index in wrong if is_missing(texts[index])]
    if missing and missing[0] == wrong[0]:
        count = f"; {len(missing)} of {len(texts)} values are missing" * (len(texts) > 1)
        raise ValueError(
            f"{where}{row}: expected strings, received the missing value {value!r}{count}. Give missing "
            'values a word of their own, x.fillna("unknown") in pandas, or drop these rows.'
        )
    raise TypeError(
        f"{where}{row}: expected strings, received {describe_value(value)}. For numbers use "
        "IntegerLookup, or convert them to text: x.astype(str)."
    )


def is_missing(value: object) -> bool:
    """Returns whether a value of a column is missing: None, NaN, `pandas.NA` or `pandas.NaT`."""
    # pandas is optional, and comparisons with pandas.NA have no truth value
    is_nan = isinstance(value, float | np.floating) and bool(np.isnan(value))
    return value is None or is_nan or type(value).__name__ in ("NAType", "NaTType")
