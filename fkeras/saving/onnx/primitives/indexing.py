"""Reading and writing elements by computed indices."""

from __future__ import annotations

import types
from typing import Any

import numpy as np

from fkeras.programs.walk import equations
from fkeras.saving.onnx.graph.writer import Operand
from fkeras.saving.onnx.primitives.elementwise import is_float, scalar
from fkeras.saving.onnx.primitives.rule import Emit, Equation, Rule, dims_of


def _mode(eq: Equation) -> str:
    return str(eq.params["mode"]).rpartition(".")[2].upper()


def _inside(eq: Equation, indices: Operand, axes: list[int], shape: tuple) -> Any:
    """Returns the indices, clipped to the array."""
    w = eq.writer
    if isinstance(indices, np.ndarray) and all(isinstance(shape[a], int) for a in axes):
        return np.clip(indices, 0, [shape[a] - 1 for a in axes])
    last = w.emit(
        "Sub",
        w.shape([shape[a] for a in axes]),
        np.ones(len(axes), np.int64),
        dims=(len(axes),),
        dtype="int64",
    )
    low = w.emit("Max", indices, np.zeros((), np.int64), dims=indices.shape, dtype="int64")
    return w.emit("Min", low, last, dims=indices.shape)


def _gather(eq: Equation) -> Any:
    x, indices = eq.inputs
    w, numbers, mode = eq.writer, eq.params["dimension_numbers"], _mode(eq)
    shape, sizes = dims_of(x.shape), dims_of(eq.params["slice_sizes"])
    axes = [int(a) for a in numbers.start_index_map]
    batch = [int(a) for a in getattr(numbers, "operand_batching_dims", ())]
    index_batch = [int(a) for a in getattr(numbers, "start_indices_batching_dims", ())]
    collapsed = [int(a) for a in numbers.collapsed_slice_dims]
    rest = [a for a in range(len(shape)) if a not in (*axes, *batch)]
    whole = all(sizes[a] == shape[a] for a in rest) and all(sizes[a] == 1 for a in axes)
    if len(indices.shape) == 1 and not batch:
        return _slice(eq, axes, shape, sizes)
    if not whole:
        raise eq.error("reads windows at computed places.", "Read single elements: jnp.take.")
    given = w.cast(indices, "int64")
    # also for indices that the program promises to be valid, as in `x[i]`: ONNX counts -1 from the end
    places = _inside(eq, given, axes, shape)
    # the axes of indices that are no coordinates, batch axes first
    loose = [a for a in range(len(indices.shape) - 1) if a not in index_batch]
    order = [*index_batch, *loose, len(indices.shape) - 1]
    places = w.transpose(places, order)
    front = [places.shape[i] for i in range(len(order) - 1)]
    if len(axes) == 1 and not batch:
        (axis,) = axes
        flat = w.reshape(places, front)
        dims = [*shape[:axis], *front, *shape[axis + 1 :]]
        y: Any = w.emit("Gather", x, flat, dims=dims, dtype=eq.out.dtype, axis=axis)
        # axes of the result: those of x before the indexed axis, the indices, those behind
        kinds: list[Any] = [*rest[:axis], *(("i", n) for n in range(len(front))), *rest[axis:]]
    else:
        x = w.transpose(x, [*batch, *axes, *rest])
        dims = [*front, *(shape[a] for a in rest)]
        y = w.emit("GatherND", x, places, dims=dims, dtype=eq.out.dtype, batch_dims=len(batch))
        kinds = [*(("i", n) for n in range(len(front))), *rest]
    # an indexed axis of size 1 may stay
    for axis in sorted(axes):
        if axis not in collapsed:
            y = w.reshape(y, (*y.shape, 1))
            kinds.append(axis)
    # JAX's order of the axes of the result
    moved = [int(a) for a in numbers.offset_dims]
    kept = sorted(a for a in range(len(shape)) if a not in collapsed and a not in batch)
    by_batch = {("i", n): a for n, a in enumerate([*index_batch, *loose])}
    position = {}
    for place, axis in zip(moved, kept, strict=True):
        position[axis] = place
    free = [a for a in range(len(eq.out.dims)) if a not in moved]
    for kind, index_axis in by_batch.items():
        position[kind] = free[index_axis]
    target = [0] * len(kinds)
    for current, kind in enumerate(kinds):
        target[position[kind]] = current
    y = w.transpose(y, target)
    if "FILL" in mode:
        y = _filled(eq, y, given, axes, shape, [free[a] for a in range(len(indices.shape) - 1)])
    return y


def _slice(eq: Equation, axes: list[int], shape: tuple, sizes: tuple) -> Any:
    """One window at a computed place."""
    x, indices = eq.inputs
    w, count = eq.writer, len(axes)
    lengths = w.shape([sizes[a] for a in axes])
    start: Any = w.cast(indices, "int64")
    rooms = [shape[a] - sizes[a] if isinstance(shape[a], int) else -1 for a in axes]
    if not isinstance(start, np.ndarray) or np.any((start < 0) | (start > rooms)):
        if "FILL" in _mode(eq):
            raise eq.error("may read outside of the array.", "Read with mode='clip'.")
        whole = w.shape([shape[a] for a in axes])
        room = w.emit("Sub", whole, lengths, dims=(count,), dtype="int64")
        start = w.emit("Max", start, np.zeros(count, np.int64), dims=(count,))
        start = w.emit("Min", start, room, dims=(count,))
    stop = w.emit("Add", start, lengths, dims=(count,), dtype="int64")
    rest = [a for a in range(len(shape)) if a not in axes and sizes[a] != shape[a]]
    if rest:
        raise eq.error("reads parts of axes without index.", "Slice these axes before.")
    dims = [sizes[a] for a in range(len(shape))]
    y = w.emit("Slice", x, start, stop, np.array(axes, np.int64), dims=dims, dtype=eq.out.dtype)
    return w.reshape(y, eq.out.dims)


def _filled(
    eq: Equation, y: Any, given: Operand, axes: list[int], shape: tuple, places: list[int]
) -> Any:
    """Replaces elements outside of the array by JAX's fill value: NaN, or the smallest integer."""
    w, rank = eq.writer, len(given.shape) - 1
    inside = _inside(eq, given, axes, shape)
    dims = given.shape
    same = w.emit("Equal", inside, given, dims=dims, dtype="bool")
    counts = w.reduce("Min", w.cast(same, "int32"), [rank], keep=False)
    sizes: list[Any] = [1] * len(eq.out.dims)
    for axis, place in enumerate(places):
        sizes[place] = dims[axis]
    valid = w.cast(w.reshape(counts, sizes), "bool")
    fill = eq.params.get("fill_value")
    if fill is None:
        dtype = np.dtype(eq.out.dtype)
        if is_float(dtype):
            fill = np.nan
        elif dtype.kind == "b":
            fill = True
        else:
            fill = np.iinfo(dtype).min if dtype.kind == "i" else np.iinfo(dtype).max
    return eq.emit("Where", valid, y, scalar(eq.out, fill))


def _scatter(reduction: str) -> Emit:
    def rule(eq: Equation) -> Any:
        x, indices, updates = eq.inputs
        w, numbers = eq.writer, eq.params["dimension_numbers"]
        shape = dims_of(x.shape)
        axes = [int(a) for a in numbers.scatter_dims_to_operand_dims]
        inserted = [int(a) for a in numbers.inserted_window_dims]
        window = [int(a) for a in numbers.update_window_dims]
        batch = [int(a) for a in getattr(numbers, "operand_batching_dims", ())]
        rest = [a for a in range(len(shape)) if a not in axes]
        if sorted(inserted) != sorted(axes) or batch or not is_float(eq.out.dtype):
            raise eq.error("writes windows at computed places.", "Write with jnp.where instead.")
        if not _writes(eq.params["update_jaxpr"], reduction):
            raise eq.error("writes a function of the elements.", "Write with jnp.where instead.")
        loose = [a for a in range(len(updates.shape)) if a not in window]
        updates = w.transpose(updates, [*loose, *window])
        places = w.cast(indices, "int64")
        x = w.transpose(x, [*axes, *rest])
        inside = _inside(eq, places, axes, shape)
        if "CLIP" in _mode(eq):
            places = inside
        elif "PROMISE" not in _mode(eq):
            # updates outside are dropped: they add 0 at a valid place
            same = w.emit("Equal", inside, places, dims=places.shape, dtype="bool")
            counts = w.reduce("Min", w.cast(same, "int32"), [len(places.shape) - 1], keep=False)
            valid = w.reshape(counts, (*counts.dims, *(1,) * len(window)))
            if reduction != "add":
                raise eq.error("may drop writes.", "Write with jnp.where instead.")
            updates = w.emit("Mul", updates, w.cast(valid, eq.out.dtype), dims=updates.shape)
            places = inside
        dims = [shape[a] for a in (*axes, *rest)]
        y = w.emit("ScatterND", x, places, updates, dims=dims, reduction=reduction)
        return w.transpose(y, np.argsort([*axes, *rest]).tolist())

    return rule


def _writes(program: Any, reduction: str) -> bool:
    """Returns whether the program adds the updates ("add"), or replaces elements by updates ("none")."""
    if program is None:
        return reduction == "none"
    names = [equation.primitive.name for equation in equations(program)]
    if reduction == "none":
        return not names and program.outvars[0] is program.invars[-1]
    return names == [reduction]


_SCATTER = "dimension_numbers mode update_jaxpr update_consts"

RULES: types.MappingProxyType[str, Rule] = types.MappingProxyType(
    {
        "gather": Rule(_gather, "dimension_numbers slice_sizes mode fill_value"),
        "scatter-add": Rule(_scatter("add"), _SCATTER),
        "scatter": Rule(_scatter("none"), _SCATTER),
    }
)
