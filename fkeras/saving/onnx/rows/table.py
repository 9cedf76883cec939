"""The table of rows: the class of a layer and the function that emits its calls."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from fkeras.engine import Layer
from fkeras.saving.onnx.rows import core, normalization, quantized, recurrent, windows

ROWS: types.MappingProxyType[type, Callable[[Any], Any]] = types.MappingProxyType(
    {
        **core.ROWS,
        **windows.ROWS,
        **normalization.ROWS,
        **recurrent.ROWS,
        **quantized.ROWS,
    }
)


def row_of(layer: Layer) -> Callable[[Any], Any] | None:
    """Returns the function that emits the calls of a layer; None for a layer without row."""
    return ROWS.get(type(layer))
