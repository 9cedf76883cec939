"""Converts the scalar arguments of `fit`, `evaluate`, `predict` and `run`."""

from __future__ import annotations

import types
from typing import Any

from fkeras.engine.config.converters import boolean, choice, either, integer, real

_COUNT = integer(minimum=1)
_OPTIONAL_COUNT = integer(minimum=1, optional=True)
_RULES = types.MappingProxyType(
    {
        "batch_size": _COUNT,
        "donate": boolean,
        "epochs": _COUNT,
        "initial_epoch": integer(minimum=0),
        "shuffle": boolean,
        "steps": _OPTIONAL_COUNT,
        "steps_per_epoch": _OPTIONAL_COUNT,
        "steps_per_execution": _OPTIONAL_COUNT,
        "validation_batch_size": _OPTIONAL_COUNT,
        "validation_freq": _COUNT,
        "validation_split": real(
            minimum=0, below=1, hint="It is the share of the last rows: 0.2 is one fifth."
        ),
        "validation_steps": _OPTIONAL_COUNT,
        "verbose": either(integer(minimum=0, maximum=2), choice("auto"), boolean),
        "workers": integer(minimum=0),
    }
)


def convert(call: str, name: str, value: object) -> Any:
    """Converts an argument of a method of `Trainer`.

    Raises:
        ValueError: for an invalid value.
    """
    return _RULES[name].check(f"Trainer.{call}: {name}", value)
