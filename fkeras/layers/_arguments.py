"""Checks of arguments that several layer families share, as converters of their fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fkeras.engine import suggest


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


def integers(argument: str, count: int, least: int = 1) -> Callable[[Any], tuple[int, ...]]:
    """A converter that takes `count` integers, or one that stands for all of them.

    Example:
        >>> integers("Conv2D: strides", 2)(3)
        (3, 3)
    """

    def convert(value: Any) -> tuple[int, ...]:
        values = (value,) * count if _is_integer(value) else value
        fits = isinstance(values, tuple | list | np.ndarray) and len(values) == count
        if not fits or not all(_is_integer(v) and v >= least for v in values):
            several = f"or a tuple of {count}" if count > 1 else "or a tuple of one"
            raise ValueError(
                f"{argument}: expected an integer of {least} or more, {several}, received "
                f"{value!r}. Give {least + 1}, or {(least + 1,) * count}."
            )
        return tuple(int(v) for v in values)

    return convert


def _is_integer(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def one_of(argument: str, *words: str) -> Callable[[Any], str]:
    """A converter that takes one of several words, in capitals or not.

    Example:
        >>> one_of("Conv2D: padding", "valid", "same")("SAME")
        'same'
    """

    def convert(value: Any) -> str:
        word = value.lower() if isinstance(value, str) else value
        if word not in words:
            raise ValueError(
                f"{argument}: expected {' or '.join(map(repr, words))}, received {value!r}."
                f"{suggest(str(word), words)} Give one of these words."
            )
        return word

    return convert


def data_format_name(value: Any) -> str:
    """Converts "channels_last", "channels_first" or None, which means "channels_last"."""
    if value is None:
        return "channels_last"
    return one_of("data_format", "channels_last", "channels_first")(value)


def noise_shape(argument: str) -> Callable[[Any], tuple[int | None, ...] | None]:
    """A converter that takes the shape of a draw: positive sizes, and None for the input's size.

    Example:
        >>> noise_shape("Dropout: noise_shape")([None, 1, None])
        (None, 1, None)
    """

    def convert(value: Any) -> tuple[int | None, ...] | None:
        if value is None:
            return None
        sizes = tuple(value) if isinstance(value, list | tuple | np.ndarray) else ()
        if not sizes or not all(n is None or (_is_integer(n) and n > 0) for n in sizes):
            raise ValueError(
                f"{argument}: expected a tuple of positive sizes and None, received "
                f"{value!r}. For the same features at every step of (b, t, d): (None, 1, None)."
            )
        return tuple(n if n is None else int(n) for n in sizes)

    return convert


def drawn_shape(where: str, noise_shape: Any, shape: Any) -> tuple:
    """The shape to draw in for an input of `shape`: `noise_shape` with its Nones filled in.

    Raises:
        ValueError: where the two differ in their number of axes; `where` names the layer.

    Example:
        >>> drawn_shape("dropout", (None, 1, None), (2, 5, 3))
        (2, 1, 3)
    """
    if noise_shape is None:
        return tuple(shape)
    if len(noise_shape) != len(shape):
        raise ValueError(
            f"{where}: expected an input of {len(noise_shape)} axes, as "
            f"noise_shape={noise_shape} has, received {format_shape(shape)}. Give "
            "noise_shape one entry an axis, the batch included."
        )
    return tuple(d if n is None else n for n, d in zip(noise_shape, shape, strict=True))
