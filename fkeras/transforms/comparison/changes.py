"""Records of what differs between two models, and their text."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias

from fkeras.engine.values.frozen import is_array

_WIDTH = 60
#: a longer section of the text is cut
_LINES = 24


@dataclasses.dataclass(frozen=True)
class LayerChange:
    """A layer that exists in one model only, has another name, or another class.

    Attributes:
        path: the path in the second model, such as "encoder/dense"; of a removed layer in the first.
        kind: what happened to the layer.
        before: the layer in the first model; of a renamed layer its path. None for an added layer.
        after: the same in the second model; None for a removed layer.

    Example:
        >>> LayerChange("head", "renamed", "dense", "head").kind
        'renamed'
    """

    path: str
    kind: Literal["added", "removed", "renamed", "replaced"]
    before: str | None
    after: str | None


@dataclasses.dataclass(frozen=True)
class ConfigChange:
    """A field of a layer's configuration with another value.

    Attributes:
        path: the path of the layer in the second model; "" for the model.
        field: the name of the field.
        before: the value in the first model.
        after: the value in the second model.

    Example:
        >>> ConfigChange("dropout", "rate", 0.1, 0.2).field
        'rate'
    """

    path: str
    field: str
    before: Any
    after: Any


@dataclasses.dataclass(frozen=True)
class CallChange:
    """A call of a graph, or the inputs or outputs of a graph, with other arguments.

    Attributes:
        path: the path of the call in the second model, such as "encoder/dense_ib-0"; of a removed
            call in the first; "inputs" or "outputs" for those of the graph.
        kind: what happened to the call.
        before: the call as text, such as "dense(x)"; None for an added call.
        after: the same in the second model; None for a removed call.

    Example:
        >>> CallChange("head_ib-0", "changed", "head(dense)", "head(dropout)").after
        'head(dropout)'
    """

    path: str
    kind: Literal["added", "removed", "changed"]
    before: str | None
    after: str | None


@dataclasses.dataclass(frozen=True)
class WeightChange:
    """A weight with other values, of another shape or dtype, or in one model only.

    Attributes:
        path: the path of the weight in the second model; in the first, if only this has the weight.
        before: dtype and shape in the first model, such as "float32[3, 4]"; None for a missing weight.
        after: dtype and shape in the second model; None for a missing weight.
        norm: Euclidean norm of the values in the first model; None if dtype or shape differ.
        distance: norm of the difference of the values.
        largest: largest absolute difference of two values.
        count: number of values that differ.

    Example:
        >>> WeightChange("dense/kernel", "float32[3, 4]", "float32[3, 5]").norm is None
        True
    """

    path: str
    before: str | None
    after: str | None
    norm: float | None = None
    distance: float | None = None
    largest: float | None = None
    count: int | None = None


Change: TypeAlias = LayerChange | ConfigChange | CallChange | WeightChange

#: the kinds of changes in the order of the text
KINDS = (LayerChange, ConfigChange, CallChange, WeightChange)
_SIGNS = types.MappingProxyType(
    {"added": "+", "removed": "-", "renamed": ">", "replaced": "~", "changed": "~"}
)
_SECTIONS = (
    (LayerChange, "Layers", "layer"),
    (ConfigChange, "Configuration", "setting"),
    (CallChange, "Calls", "call"),
    (WeightChange, "Weights", "weight"),
)


def changes_text(changes: Sequence[Change]) -> str:
    """Returns changes as sections of aligned lines."""
    if not changes:
        return "No difference"
    counts, lines = [], []
    for cls, title, noun in _SECTIONS:
        rows = [_row(change) for change in changes if isinstance(change, cls)]
        if rows:
            counts.append(f"{len(rows)} {noun}{'s' if len(rows) != 1 else ''}")
            lines += [title, *_aligned(rows[:_LINES])]
            if len(rows) > _LINES:
                lines.append(f"  ... and {len(rows) - _LINES} more")
    total = f"{len(changes)} difference{'s' if len(changes) != 1 else ''}"
    return "\n".join([f"{total}: {', '.join(counts)}", *lines])


def _aligned(rows: list[list[str]]) -> Iterator[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        yield f"  {cells[0]} {'  '.join(cells[1:])}".rstrip()


def _row(change: Change) -> list[str]:
    """Returns the cells of a line: sign, path and descriptions."""
    if isinstance(change, ConfigChange):
        values = f"{_short(change.before)} -> {_short(change.after)}"
        return ["~", change.path or "the model", change.field, values]
    if isinstance(change, WeightChange):
        return _weight_row(change)
    if isinstance(change, LayerChange) and change.kind == "renamed":
        return [_SIGNS["renamed"], change.path, f"was {change.before}"]
    texts = [text for text in (change.before, change.after) if text is not None]
    return [_SIGNS[change.kind], change.path, " -> ".join(_cut(text) for text in texts)]


def _weight_row(change: WeightChange) -> list[str]:
    if change.before is None or change.after is None:
        sign = "+" if change.before is None else "-"
        return [sign, change.path, change.after or change.before or "", ""]
    if change.distance is None:
        return ["~", change.path, f"{change.before} -> {change.after}", ""]
    share = f", {100 * change.distance / change.norm:.2g} %" if change.norm else ""
    text = (
        f"norm {change.norm:.3g}, distance {change.distance:.3g}{share}; largest {change.largest:.3g}, "
        f"{change.count:,} values"
    )
    return ["~", change.path, change.after, text]


def _short(value: Any) -> str:
    name = getattr(value, "__name__", None)
    if callable(value) and isinstance(name, str):
        return name
    return _cut(f"array of {value.dtype}{list(value.shape)}" if is_array(value) else repr(value))


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."
