"""`agree`: runs two models on the same inputs and reports the first call whose values differ.

The error that is allowed follows from the roundings on the way. A sum of `n` terms has a relative
error of about `sqrt(n) * eps`, where `eps` is the rounding error of the coarser dtype of both sides;
errors of successive calls add up like independent ones. The first `k` calls may therefore differ by
`8 * sqrt(eps_1**2 * n_1 + ... + eps_k**2 * n_k)`, relative to the largest value of the output.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine.graph.call_table import Coord
from fkeras.engine.layer.layer import Layer
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.transforms.comparison.call_values import CallValues, Run, renamed, run_side
from fkeras.transforms.comparison.comparing import compare_models

#: what `agree` compares: a model, `(model, state)`, a function of the inputs, or the path of a file
Side: TypeAlias = Layer | tuple[Layer, Any] | Callable[..., Any] | str | os.PathLike[str]

# allowed errors over the typical error of random roundings: elements of large arrays deviate more
_FACTOR = 8.0
_ROWS = 40


@dataclasses.dataclass(frozen=True)
class CallAgreement:
    """The comparison of one tensor.

    Attributes:
        coordinates: path of the layer, index of the call, index of the output.
        error: largest absolute difference; infinity for NaN or infinity on one side only, and for
            values that cannot be compared.
        rounding: rounding error of the coarser dtype at the largest value.
        allowed: the error that the roundings so far explain.
        note: what differs besides the values, such as "shape (2, 3), (3, 2)".

    Example:
        >>> row = CallAgreement(Coord("dense", 0, 0), 0.5, 1e-7, 1e-6)
        >>> row.agrees
        False
    """

    coordinates: Coord
    error: float
    rounding: float
    allowed: float
    note: str = ""

    @property
    def agrees(self) -> bool:
        return self.error <= self.allowed


@dataclasses.dataclass(frozen=True, repr=False)
class Agreement:
    """The result of `agree`: true if every call agrees; prints as a table.

    Attributes:
        calls: the compared tensors in running order.
        skipped: coordinates that one side only has.

    Example:
        >>> good, bad = (CallAgreement(Coord(n, 0, 0), e, 1e-7, 1e-6) for n, e in (("a", 0.), ("b", 1.)))
        >>> agreement = Agreement((good, bad))
        >>> bool(agreement), agreement.first, agreement.errors[agreement.first]
        (False, Coord(layer='b', node=0, tensor=0), 1.0)
    """

    calls: tuple[CallAgreement, ...]
    skipped: tuple[Coord, ...] = ()

    @property
    def first(self) -> Coord | None:
        """Coordinates of the first call that disagrees, None if all agree."""
        return next((call.coordinates for call in self.calls if not call.agrees), None)

    @property
    def errors(self) -> dict[Coord, float]:
        """The largest absolute error by coordinates, in running order."""
        return {call.coordinates: call.error for call in self.calls}

    def __bool__(self) -> bool:
        return self.first is None

    def __repr__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        wrong = [number for number, call in enumerate(self.calls) if not call.agrees]
        if wrong:
            yield (
                f"{len(wrong)} of {len(self.calls)} values disagree, first "
                f"{_name(self.calls[wrong[0]].coordinates)}"
            )
        else:
            yield f"All {len(self.calls)} values agree"
        # the place of the first disagreement, if the table is too long
        start = max(0, wrong[0] - _ROWS // 2) if wrong and len(self.calls) > _ROWS else 0
        rows = [("call", "error", "rounding", "allowed", "")]
        for call in self.calls[start : start + _ROWS]:
            mark = "" if call.agrees else "disagrees"
            error, rounding, allowed = (
                f"{value:.1e}" for value in (call.error, call.rounding, call.allowed)
            )
            text = f"{mark}: {call.note}" if mark and call.note else mark or call.note
            rows.append((_name(call.coordinates), error, rounding, allowed, text))
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        for row in rows:
            cells = [row[0].ljust(widths[0]), *(row[i].rjust(widths[i]) for i in (1, 2, 3)), row[4]]
            yield "  ".join(cells).rstrip()
        hidden = len(self.calls) - (len(rows) - 1)
        if hidden:
            yield f"... and {hidden} more in agreement.calls"
        if self.skipped:
            yield f"{len(self.skipped)} values are on one side only: agreement.skipped"


@hides_internal_frames
def agree(
    a: Side,
    b: Side,
    inputs: Any,
    *,
    training: bool = False,
    key: jax.Array | None = None,
    tolerance: float | None = None,
    custom_objects: Mapping[str, Any] | None = None,
) -> Agreement:
    """Computes two sides on the same inputs and compares the values of every call.

    Calls are compared in running order, so the first call that disagrees is where the fault is: its
    inputs agree. Calls inside nested models have paths, calls of a shared layer have numbers. Layers
    of other names are matched as by `diff`. Besides the values, masks, updates of the state and losses
    of a call count.

    The allowed error follows from the dtypes and from the lengths of sums:
    `8 * sqrt(eps_1**2 * n_1 + ... + eps_k**2 * n_k)` for the first `k` calls, relative to the largest
    value of the output. `eps` is the rounding error of the coarser dtype of both sides, `n` the number
    of inputs of one output. Integers and masks must be equal. NaN equals NaN.

    Args:
        a: a built model; `(model, state)`; a function of the inputs; or the path of a `.keras`, `.h5`,
            `.jax` or `.onnx` file. A function returns the outputs, or values by coordinates such as
            `{"dense_ib-0": value}` or `{("dense", 0, 0): value}`, or a pair of both. A function and a
            `.jax` program without coordinates are compared by their outputs alone.
        b: the other side.
        inputs: the inputs: an array, or a list or dictionary as the model takes.
        training: whether models make a training call; needed to compare updates of the state.
        key: a PRNG key, where a training call draws random numbers. Both sides get the same key.
        tolerance: the allowed error relative to the largest value of an output, for every call, in
            the place of the rounding errors: 0.05 for a quantized model.
        custom_objects: custom classes and functions for files, as for `fk.load_model`.

    Raises:
        TypeError: for a side of another type.
        ValueError: for a model without weights, for a model with strings, for sides without common
            values, and for a file with another suffix.
        FileNotFoundError: for a missing file.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> from fkeras import layers, transforms
        >>> x = fk.Input((4,), name="x")
        >>> h = layers.Dense(3, name="body")(x)
        >>> a = fk.Model(x, layers.Activation("gelu", name="act")(h)).build(jax.random.key(0))
        >>> b = fk.Model(x, layers.Activation("relu", name="act")(h)).build(jax.random.key(0))
        >>> agreement = transforms.agree(a, b, jnp.ones((2, 4)))
        >>> bool(agreement), agreement.first
        (False, Coord(layer='act', node=0, tensor=0))
    """
    if tolerance is not None and not 0 <= tolerance < math.inf:
        raise ValueError(
            f"transforms.agree: expected a tolerance of at least 0, received {tolerance!r}. Pass a "
            "relative error such as 0.05, or None."
        )
    one, two = (run_side(side, inputs, training, key, custom_objects) for side in (a, b))
    pairs = _pairs(one, two)
    rows, variance = [], 0.0
    for call, (first, second) in pairs.items():
        reduction = max(first.reduction, second.reduction)
        eps = max((_eps(x) for x in (*first.values, *second.values) if x is not None), default=0.0)
        variance += eps**2 * reduction
        allowed = _FACTOR * math.sqrt(variance) if tolerance is None else tolerance
        rows += _compare_call(call, first, second, allowed)
    rows += _compare_outputs(one, two, pairs, variance, tolerance)
    if not rows:
        raise ValueError(
            "transforms.agree: expected sides with common outputs or calls, received none. A function "
            "returns the outputs, or values by coordinates such as {'dense_ib-0': value}."
        )
    return Agreement(tuple(rows), _skipped(one, two, pairs))


Calls: TypeAlias = dict[tuple[str, int], tuple[CallValues, CallValues]]


def _pairs(one: Run, two: Run) -> Calls:
    """Returns the calls of both sides by the coordinates of the first side."""
    names = {call: call for call in one.calls}
    if one.model is not None and two.model is not None and one.calls.keys() != two.calls.keys():
        comparison, _, _ = compare_models(one.model, two.model, "transforms.agree")
        names = renamed(one.calls, comparison.paths)
    if one.model is None and two.model is not None:  # a model knows the running order
        return {c: (one.calls[c], second) for c, second in two.calls.items() if c in one.calls}
    return {
        call: (first, two.calls[names[call]])
        for call, first in one.calls.items()
        if names[call] in two.calls
    }


def _compare_call(
    call: tuple[str, int], first: CallValues, second: CallValues, allowed: float
) -> Iterator[CallAgreement]:
    parts = ""
    if first.parts is not None and second.parts is not None:
        names = dict.fromkeys((*first.parts, *second.parts))
        different = (
            name
            for name in names
            if not _compare(
                Coord(*call, 0), first.parts.get(name), second.parts.get(name), allowed
            ).agrees
        )
        parts = next(different, "")
    count = max(len(first.values), len(second.values), int(bool(parts)))
    for tensor in range(count):
        values = [v[tensor] if tensor < len(v) else None for v in (first.values, second.values)]
        row = _compare(Coord(*call, tensor), values[0], values[1], allowed)
        if tensor == 0 and parts and row.agrees:
            row = dataclasses.replace(row, error=math.inf, note=f"other {parts}")
        yield row


def _compare_outputs(
    one: Run, two: Run, pairs: Calls, variance: float, tolerance: float | None
) -> Iterator[CallAgreement]:
    if one.outputs is None or two.outputs is None:
        return
    outputs = one.outputs, two.outputs
    if len(outputs[0]) != len(outputs[1]):
        outputs = one.with_calls or one.outputs, two.with_calls or two.outputs
    names = one.names or two.names or tuple(Coord("output", 0, i) for i in range(len(outputs[0])))
    if len(outputs[0]) != len(outputs[1]):
        raise ValueError(
            f"transforms.agree: expected sides with the same number of outputs, received "
            f"{len(outputs[0])} and {len(outputs[1])}. Let both sides return the same tensors."
        )
    if not variance:  # no common calls: those of the side with a graph count
        for run in (one, two):
            for call in run.calls.values():
                eps = max((_eps(x) for x in call.values if x is not None), default=0.0)
                variance += eps**2 * call.reduction
            if variance:
                break
    seen = set()
    for name, x, y in zip(names, *outputs, strict=False):
        if name[:2] in pairs or name in seen:
            continue
        seen.add(name)
        allowed = _FACTOR * math.sqrt(variance or _eps(x) ** 2) if tolerance is None else tolerance
        yield _compare(name, x, y, allowed)


def _compare(coord: Coord, x: Any, y: Any, relative: float) -> CallAgreement:
    if x is None or y is None:
        side = "second" if x is not None else "first"
        return CallAgreement(coord, math.inf, 0.0, 0.0, f"missing on the {side} side")
    x, y = (jax.random.key_data(v) if _is_key(v) else v for v in (x, y))
    eps = max(_eps(x), _eps(y))
    arrays = [np.asarray(v) for v in (x, y)]
    note = "" if x.dtype == y.dtype else f"dtype {x.dtype}, {y.dtype}"
    if arrays[0].shape != arrays[1].shape:
        shapes = f"shape {arrays[0].shape}, {arrays[1].shape}"
        return CallAgreement(coord, math.inf, 0.0, 0.0, shapes)
    wide = "complex128" if any(v.dtype.kind == "c" for v in arrays) else "float64"
    first, second = (v.astype(wide) for v in arrays)
    same = (first == second) | (np.isnan(first) & np.isnan(second))
    finite = np.isfinite(first) & np.isfinite(second)
    with np.errstate(invalid="ignore", over="ignore"):
        delta = np.where(same, 0.0, np.where(finite, np.abs(first - second), math.inf))
        scale = max(float(np.abs(v[np.isfinite(v)]).max(initial=0.0)) for v in (first, second))
    error = float(delta.max(initial=0.0))
    exact = eps == 0
    return CallAgreement(coord, error, eps * scale, 0.0 if exact else relative * scale, note)


def _is_key(value: Any) -> bool:
    return isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def _eps(value: Any) -> float:
    dtype = getattr(value, "dtype", None)
    if dtype is None or not jnp.issubdtype(dtype, jnp.inexact):
        return 0.0
    return float(jnp.finfo(dtype).eps)


def _skipped(one: Run, two: Run, pairs: Calls) -> tuple[Coord, ...]:
    if not one.calls or not two.calls:
        return ()
    used = {id(values) for pair in pairs.values() for values in pair}
    return tuple(
        Coord(*call, 0)
        for run in (one, two)
        for call, values in run.calls.items()
        if id(values) not in used
    )


def _name(coord: Coord) -> str:
    text = f"{coord.layer}_ib-{coord.node}"
    return f"{text}[{coord.tensor}]" if coord.tensor else text
