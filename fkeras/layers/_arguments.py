"""Checks of arguments that several layer families share, as converters of their fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def positive_integer(argument: str) -> Callable[[Any], int]:
    """A converter that takes integers above 0; `argument` is its name in the message."""

    def convert(value: Any) -> int:
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not whole or value <= 0:
            raise ValueError(
                f"{argument}: expected a positive integer, received {value!r} "
                f"({type(value).__name__}). It counts something that must be there: give 1 or more."
            )
        return int(value)

    return convert


def fraction(argument: str) -> Callable[[Any], float]:
    """A converter that takes numbers from 0 to 1; `argument` is its name in the message."""

    def convert(value: Any) -> float:
        number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not number or not 0 <= value <= 1:
            raise ValueError(
                f"{argument}: expected a number from 0 to 1, received {value!r}. It is a share, "
                "not a percentage: 0.2 is one fifth."
            )
        return value

    return convert


def format_shape(shape: Any) -> str:
    """A shape as text, with the names of its unknown axes: `(b, 8)`."""
    inner = ", ".join(map(str, shape))
    return f"({inner},)" if len(shape) == 1 else f"({inner})"
