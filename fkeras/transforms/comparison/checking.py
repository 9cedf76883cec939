"""The argument `check` of converters: the result of a conversion is compared with its origin."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Set
from typing import Any

from fkeras.engine.messages.errors import add_note
from fkeras.transforms.comparison.agreeing import Side, agree


def require_agreement(
    where: str,
    a: Side,
    b: Side,
    inputs: Any,
    *,
    tolerance: float | None = None,
    custom_objects: Mapping[str, Any] | None = None,
    changed: Set[str] = frozenset(),
) -> None:
    """Raises a `ValueError` that names the first call at which the result of a conversion disagrees.

    Args:
        where: the function of the user's call.
        a: the origin, as for `agree`.
        b: the result of the conversion.
        inputs: the argument `check`: inputs of the model.
        tolerance: as for `agree`.
        custom_objects: as for `agree`.
        changed: paths of layers that compute other values on purpose.
    """
    agreement = agree(a, b, inputs, tolerance=tolerance, custom_objects=custom_objects)
    calls = tuple(call for call in agreement.calls if call.coordinates.layer not in changed)
    first = next((call for call in calls if not call.agrees), None)
    if first is None:
        return
    layer, node, tensor = first.coordinates
    note = f" ({first.note})" if first.note else ""
    error = ValueError(
        f"{where}, check: the result disagrees first in {layer!r}, call {node}, output {tensor}: its "
        f"error is {first.error:.1e}{note}, allowed are {first.allowed:.1e}. Compare "
        "both sides with transforms.agree."
    )
    add_note(error, repr(dataclasses.replace(agreement, calls=calls)))
    raise error
