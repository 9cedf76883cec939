"""Operations that move elements: shapes, slices, borders, concatenation, ranges."""

from __future__ import annotations

import types
from typing import Any

import numpy as np

from fkeras.saving.onnx.graph.writer import Operand, Value
from fkeras.saving.onnx.primitives.elementwise import broadcast, scalar
from fkeras.saving.onnx.primitives.rule import Equation, Rule, dims_of


def _reshape(eq: Equation) -> Any:
    x, order = eq.inputs[0], eq.params.get("dimensions")
    return eq.writer.reshape(x if order is None else eq.writer.transpose(x, order), eq.out.dims)


def _broadcast(eq: Equation) -> Any:
    x, places = eq.inputs[0], eq.params["broadcast_dimensions"]
    sizes: list[Any] = [1] * len(eq.out.dims)
    for axis, place in enumerate(places):
        sizes[place] = x.shape[axis]
    small = eq.writer.reshape(x, sizes)
    return small if tuple(small.shape) == eq.out.dims else broadcast(eq, small)


def _transpose(eq: Equation) -> Any:
    return eq.writer.transpose(eq.inputs[0], eq.params["permutation"])


def _bound(eq: Equation, size: Any) -> Operand:
    return eq.writer.shape([size])


def _slice(eq: Equation) -> Any:
    x, params = eq.inputs[0], eq.params
    starts, limits = dims_of(params["start_indices"]), dims_of(params["limit_indices"])
    strides = params["strides"] or (1,) * len(starts)
    shape = dims_of(x.shape)
    axes = [a for a, n in enumerate(shape) if (starts[a], limits[a], strides[a]) != (0, n, 1)]
    if not axes:
        return x
    return eq.emit(
        "Slice",
        x,
        eq.writer.shape([starts[a] for a in axes]),
        eq.writer.shape([limits[a] for a in axes]),
        np.array(axes, np.int64),
        np.array([int(strides[a]) for a in axes], np.int64),
    )


def _reverse(eq: Equation) -> Any:
    x, axes = eq.inputs[0], [int(a) for a in eq.params["dimensions"]]
    count, last = len(axes), np.iinfo(np.int64)
    starts, stops = np.full(count, -1, np.int64), np.full(count, last.min, np.int64)
    return eq.emit(
        "Slice", x, starts, stops, np.array(axes, np.int64), np.full(count, -1, np.int64)
    )


def _pad(eq: Equation) -> Any:
    x, fill = eq.inputs
    config = eq.params["padding_config"]
    if any(int(inner) for _, _, inner in config):
        raise eq.error("inserts cells between cells.", "Use a transposed convolution layer.")
    low, high = dims_of([c[0] for c in config]), dims_of([c[1] for c in config])
    w, dims = eq.writer, x.shape
    if any(isinstance(n, int) and n < 0 for n in (*low, *high)):
        # negative numbers crop
        big = np.iinfo(np.int64).max
        start = np.array([max(-n, 0) if isinstance(n, int) else 0 for n in low], np.int64)
        stop = np.array([n if isinstance(n, int) and n < 0 else big for n in high], np.int64)
        x = w.emit("Slice", x, start, stop, np.arange(len(dims), dtype=np.int64), dims=dims)
        low = tuple(max(n, 0) if isinstance(n, int) else n for n in low)
        high = tuple(max(n, 0) if isinstance(n, int) else n for n in high)
    if not any((*low, *high)):
        return Value(x.name, eq.out.dims, eq.out.dtype) if isinstance(x, Value) else x
    if eq.out.dtype == "bool":
        wide = w.emit(
            "Pad",
            w.cast(x, "int32"),
            w.shape((*low, *high)),
            w.cast(fill, "int32"),
            dims=eq.out.dims,
        )
        return w.cast(wide, "bool")
    return eq.emit("Pad", x, w.shape((*low, *high)), fill)


def _concatenate(eq: Equation) -> Any:
    return eq.emit("Concat", *eq.inputs, axis=int(eq.params["dimension"]))


def _stack(eq: Equation) -> Any:
    axis = int(eq.params["axis"])
    dims = list(eq.out.dims)
    dims[axis] = 1
    return eq.emit("Concat", *(eq.writer.reshape(x, dims) for x in eq.inputs), axis=axis)


def _split(eq: Equation) -> Any:
    axis = int(eq.params["axis"])
    outputs = [(spec.dims, spec.dtype) for spec in eq.outputs]
    sizes = eq.writer.shape(dims_of(eq.params["sizes"]))
    return eq.writer.emit_several("Split", eq.inputs[0], sizes, outputs=outputs, axis=axis)


def _iota(eq: Equation) -> Any:
    axis, w = int(eq.params["dimension"]), eq.writer
    size = eq.out.dims[axis]
    bounds = np.array(0, np.int64), w.size(size), np.array(1, np.int64)
    numbers = w.cast(w.emit("Range", *bounds, dims=(size,)), eq.out.dtype)
    column = [size if a == axis else 1 for a in range(len(eq.out.dims))]
    small = w.reshape(numbers, column)
    return small if tuple(column) == eq.out.dims else broadcast(eq, small)


def _squeeze(eq: Equation) -> Any:
    return eq.writer.reshape(eq.inputs[0], eq.out.dims)


def _dimension(eq: Equation) -> Any:
    """The size of an unknown axis as an array of the program."""
    return eq.writer.cast(eq.writer.size(str(eq.params["dim"])), eq.out.dtype)


def _dynamic_slice(eq: Equation) -> Any:
    x, *starts = eq.inputs
    sizes = dims_of(eq.params["slice_sizes"])
    w, n = eq.writer, len(sizes)
    parts = [w.reshape(w.cast(s, "int64"), (1,)) for s in starts]
    begin = w.emit("Concat", *parts, dims=(n,), dtype="int64", axis=0)
    # JAX moves a start so that the slice stays inside
    room = w.emit("Sub", w.shape(dims_of(x.shape)), w.shape(sizes), dims=(n,), dtype="int64")
    begin = w.emit("Max", begin, np.zeros(n, np.int64), dims=(n,))
    begin = w.emit("Min", begin, room, dims=(n,))
    end = w.emit("Add", begin, w.shape(sizes), dims=(n,))
    return eq.emit("Slice", x, begin, end, np.arange(n, dtype=np.int64))


def zeros(eq: Equation) -> Any:
    """Returns zeros of the shape of the result."""
    return broadcast(eq, scalar(eq.out, 0).reshape((1,) * len(eq.out.dims)))


RULES: types.MappingProxyType[str, Rule] = types.MappingProxyType(
    {
        "reshape": Rule(_reshape, "new_sizes dimensions"),
        "broadcast_in_dim": Rule(_broadcast, "shape broadcast_dimensions"),
        "transpose": Rule(_transpose, "permutation"),
        "slice": Rule(_slice, "start_indices limit_indices strides"),
        "rev": Rule(_reverse, "dimensions"),
        "pad": Rule(_pad, "padding_config"),
        "concatenate": Rule(_concatenate, "dimension"),
        "stack": Rule(_stack, "axis"),
        "split": Rule(_split, "sizes axis"),
        "iota": Rule(_iota, "dtype shape dimension"),
        "squeeze": Rule(_squeeze, "dimensions"),
        "dim_as_value": Rule(_dimension, "dim"),
        "dynamic_slice": Rule(_dynamic_slice, "slice_sizes"),
    }
)
