"""Tokenization of texts: standardization, splitting, n-grams."""

from __future__ import annotations

import re
import string
import types
from collections.abc import Sequence

import numpy as np

# ASCII letters and whitespace only, like TensorFlow's string ops
_LOWER = types.MappingProxyType(str.maketrans(string.ascii_uppercase, string.ascii_lowercase))
_STRIP = types.MappingProxyType(str.maketrans("", "", string.punctuation))
_WORD = re.compile(r"[^ \t\n\v\f\r]+")

STANDARDS = types.MappingProxyType(
    {"lower": _LOWER, "strip_punctuation": _STRIP, "lower_and_strip_punctuation": _LOWER | _STRIP}
)


def standardize(texts: Sequence[str], standard: str) -> list[str]:
    """Converts ASCII letters to lower case, removes ASCII punctuation, or both."""
    return [text.translate(STANDARDS[standard]) for text in texts]


def split_words(text: str) -> list[str]:
    """Splits a text into words at ASCII whitespace."""
    return _WORD.findall(text)


def join_words(words: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Returns the n-grams of each width in turn: adjacent words, joined by spaces."""
    return [
        " ".join(words[start : start + width])
        for width in widths
        for start in range(len(words) - width + 1)
    ]


def pad_rows(rows: Sequence[np.ndarray], size: int, value: int) -> np.ndarray:
    """Stacks rows of different lengths into one array: cut to `size`, or padded with `value`."""
    padded = np.full((len(rows), size), value, np.int64)
    for place, row in enumerate(rows):
        padded[place, : len(row)] = row[:size]
    return padded
