"""Operations along axes: sums, extremes, positions, running sums, sorting."""

from __future__ import annotations

import types
from typing import Any

import numpy as np

from fkeras.saving.onnx.primitives.rule import Emit, Equation, Rule


def _reduce(kind: str) -> Emit:
    def rule(eq: Equation) -> Any:
        x, w = eq.inputs[0], eq.writer
        axes = [int(a) for a in eq.params["axes"]]
        if not axes:
            return x
        # ONNX Runtime reduces these dtypes only
        if str(x.dtype) in ("float32", "float64", "int32", "int64", "float16", "bfloat16"):
            return w.reduce(kind, x, axes, keep=False)
        return w.cast(w.reduce(kind, w.cast(x, "int32"), axes, keep=False), eq.out.dtype)

    return rule


def _position(op: str) -> Emit:
    def rule(eq: Equation) -> Any:
        (axis,) = eq.params["axes"]
        w = eq.writer
        found = w.emit(op, eq.inputs[0], dims=eq.out.dims, dtype="int64", axis=axis, keepdims=0)
        return w.cast(found, eq.out.dtype)

    return rule


def _cumsum(eq: Equation) -> Any:
    axis = np.array(eq.params["axis"], np.int64)
    return eq.emit("CumSum", eq.inputs[0], axis, reverse=int(eq.params["reverse"]))


def _cummax(eq: Equation) -> Any:
    x, w, axis = eq.inputs[0], eq.writer, int(eq.params["axis"])
    if eq.params["reverse"]:
        raise eq.error("has an ONNX form from the first element on only.", "Flip the array.")
    # ONNX has running sums only: the maximum of each row of a triangle
    dims, size, after = tuple(eq.out.dims), eq.out.dims[axis], (1,) * (len(eq.out.dims) - axis - 1)
    bounds = np.array(0, np.int64), w.size(size), np.array(1, np.int64)
    numbers = w.emit("Range", *bounds, dims=(size,), dtype="int64")
    row, column = (w.reshape(numbers, (*lead, *after)) for lead in ((size, 1), (1, size)))
    counts = w.emit("LessOrEqual", column, row, dims=(size, size, *after), dtype="bool")
    info = np.iinfo if np.issubdtype(np.dtype(eq.out.dtype), np.integer) else np.finfo
    lowest = np.array(info(eq.out.dtype).min, eq.out.dtype)
    wide = w.reshape(x, (*dims[:axis], 1, *dims[axis:]))
    wide_dims = (*dims[: axis + 1], *dims[axis:])
    kept = w.emit("Where", counts, wide, lowest, dims=wide_dims, dtype=eq.out.dtype)
    return w.reduce("Max", kept, [axis + 1], keep=False)


def _sort(eq: Equation) -> Any:
    first, *others = eq.inputs
    axis, w, dims = int(eq.params["dimension"]), eq.writer, eq.out.dims
    if eq.params["num_keys"] != 1 or str(first.dtype) == "bool":
        raise eq.error("sorts by several keys or by Booleans.", "Sort by one key of numbers.")
    count = w.shape([dims[axis]])
    values, places = w.emit_several(
        "TopK",
        first,
        count,
        outputs=[(dims, eq.out.dtype), (dims, "int64")],
        axis=axis,
        largest=0,
    )
    rest = [w.emit("GatherElements", x, places, dims=dims, axis=axis) for x in others]
    return [values, *rest]


def _top_k(eq: Equation) -> Any:
    x, w = eq.inputs[0], eq.writer
    values, indices = eq.outputs
    count = np.array([eq.params["k"]], np.int64)
    top, places = w.emit_several(
        "TopK",
        x,
        count,
        outputs=[(values.dims, values.dtype), (indices.dims, "int64")],
        axis=int(eq.params.get("axis", -1)),
    )
    return [top, w.cast(places, indices.dtype)]


RULES: types.MappingProxyType[str, Rule] = types.MappingProxyType(
    {
        "reduce_sum": Rule(_reduce("Sum"), "axes"),
        "reduce_max": Rule(_reduce("Max"), "axes"),
        "reduce_min": Rule(_reduce("Min"), "axes"),
        "reduce_prod": Rule(_reduce("Prod"), "axes"),
        "reduce_and": Rule(_reduce("Min"), "axes"),
        "reduce_or": Rule(_reduce("Max"), "axes"),
        "argmax": Rule(_position("ArgMax"), "axes index_dtype"),
        "argmin": Rule(_position("ArgMin"), "axes index_dtype"),
        "cummax": Rule(_cummax, "axis reverse"),
        "cumsum": Rule(_cumsum, "axis reverse"),
        "sort": Rule(_sort, "dimension num_keys"),
        "top_k": Rule(_top_k, "k axis"),
    }
)
