"""Converters of the arguments of optimizers: each takes a value, checks it and returns it."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

from fkeras.optimizers import schedules


def rate(value: Any) -> Any:
    """A learning rate: a number, or a function of the step."""
    if isinstance(value, Mapping):
        value = schedules.deserialize(value)
    if callable(value):
        return value
    if isinstance(value, bool | str) or value is None:
        raise TypeError(
            f"learning_rate: expected a number, a schedule or a function of the step, received "
            f"{value!r}. For example 1e-3, or schedules.CosineDecay(1e-3, 10_000)."
        )
    return float(value)


def positive(name: str) -> Any:
    """A converter that takes numbers above 0, and None."""

    def convert(value: Any) -> Any:
        if value is not None and not (_is_number(value) and value > 0):
            raise ValueError(f"{name}: expected a number above 0 or None, received {value!r}.")
        return value

    return convert


def fraction(name: str) -> Any:
    """A converter that takes numbers from 0 to 1."""

    def convert(value: Any) -> float:
        if not (_is_number(value) and 0 <= value <= 1):
            raise ValueError(f"{name}: expected a number from 0 to 1, received {value!r}.")
        return float(value)

    return convert


def number_or_none(name: str) -> Any:
    """A converter that takes numbers, and None."""

    def convert(value: Any) -> Any:
        if value is not None and not _is_number(value):
            raise TypeError(f"{name}: expected a number or None, received {value!r}.")
        return value

    return convert


def whole(name: str, least: int, *, none: bool = True) -> Any:
    """A converter that takes whole numbers of `least` or more, and None where it may be."""

    def convert(value: Any) -> Any:
        if value is None and none:
            return None
        if not (_is_number(value) and isinstance(value, numbers.Integral) and value >= least):
            more = "more, or None" if none else "more"
            raise ValueError(
                f"{name}: expected a whole number of {least} or {more}, received {value!r}."
            )
        return int(value)

    return convert


def words(name: str) -> Any:
    """A converter that takes a string or several, and makes a tuple of them."""

    def convert(value: Any) -> tuple[str, ...]:
        value = (value,) if isinstance(value, str) else value
        if value is None:
            return ()
        if not isinstance(value, tuple | list) or not all(isinstance(v, str) and v for v in value):
            raise TypeError(
                f"{name}: expected names or patterns of weights, such as ('bias', 'norm*/gamma'), "
                f"received {value!r}."
            )
        return tuple(value)

    return convert


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
