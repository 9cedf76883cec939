"""Converters for the arguments of optimizers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fkeras.engine.config.converters import function, real
from fkeras.engine.messages.errors import describe_value
from fkeras.optimizers import schedules

_number = real(minimum=0)
_function = function()


def rate(value: object) -> Any:
    """Converts a learning rate: a number of 0 or more, or a function of the step."""
    if isinstance(value, Mapping):  # a configuration of Keras
        value = schedules.deserialize(value)
    if _number.accepts(value):
        return _number(value)
    if not _function.accepts(value):
        raise ValueError(
            "expected a number of 0 or more, a schedule or a function of the step, received "
            f"{describe_value(value)}. For example 1e-3, or schedules.CosineDecay(1e-3, 10_000)."
        )
    return value


def words(value: object) -> tuple[str, ...]:
    """Converts names or patterns of weights, a string, several strings or None, to a tuple."""
    value = (value,) if isinstance(value, str) else value
    if value is None:
        return ()
    if not isinstance(value, tuple | list) or not all(isinstance(v, str) and v for v in value):
        raise TypeError(
            "expected names or patterns of weights, such as ('bias', 'norm*/gamma'), received "
            f"{describe_value(value)}."
        )
    return tuple(value)
