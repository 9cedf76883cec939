"""Rows of operations that move, copy and select elements."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import jax

from fkeras.engine.rows.equation import Equation
from fkeras.engine.rows.values import MIXED, WHOLE, Value, rows


def _broadcast(equation: Equation, values: Sequence[Value]) -> Value:
    (value,) = values
    if value.is_whole:
        axis = equation.new_axis
        return rows(axis, value.fill) if axis is not None else MIXED
    axis = equation.params["broadcast_dimensions"][value.axis]
    same = equation.results[0][0][axis] == equation.shape(0)[value.axis]
    return value.moved(axis) if same else MIXED


def _reshape(equation: Equation, values: Sequence[Value]) -> Value:
    value, shape = values[0], equation.shape(0)
    if equation.params.get("dimensions") is not None:
        return MIXED
    # Elements keep their order. With the same number of elements before the axis, each row stays
    # one block of neighbours: (rows, times, ...) -> (rows * times, ...), and back.
    before, counted = math.prod(shape[: value.axis]), 1
    axis = equation.new_axis
    for candidate, size in enumerate(equation.results[0][0]):
        if counted == before and size > 1 and axis in (None, candidate):
            return value.moved(candidate)
        counted *= size
    return MIXED


def _squeeze(equation: Equation, values: Sequence[Value]) -> Value:
    axis, removed = values[0].axis, equation.params["dimensions"]
    return MIXED if axis in removed else values[0].moved(axis - sum(d < axis for d in removed))


def _transpose(equation: Equation, values: Sequence[Value]) -> Value:
    return values[0].moved(tuple(equation.params["permutation"]).index(values[0].axis))


def _reverse(equation: Equation, values: Sequence[Value]) -> Value:
    return MIXED if values[0].axis in equation.params["dimensions"] else values[0]


def _concatenate(equation: Equation, values: Sequence[Value]) -> Value:
    axes = {value.axis if value.is_rows else None for value in values}
    if len(axes) > 1 or equation.params["dimension"] in axes:
        return MIXED
    fills = {value.fill for value in values}
    return rows(values[0].axis, fills.pop() if len(fills) == 1 else None)


def _stack(equation: Equation, values: Sequence[Value]) -> Value:
    axes = {value.axis if value.is_rows else None for value in values}
    if len(axes) > 1:
        return MIXED
    axis = values[0].axis
    return rows(axis + (equation.params["axis"] <= axis))


def _unstack(equation: Equation, values: Sequence[Value]) -> list[Value]:
    axis, removed = values[0].axis, equation.params["axis"]
    value = MIXED if axis == removed else values[0].moved(axis - (removed < axis))
    return [value] * len(equation.results)


def _pad(equation: Equation, values: Sequence[Value]) -> Value:
    array, number = values
    if not array.is_rows or equation.params["padding_config"][array.axis] != (0, 0, 0):
        return MIXED
    return rows(array.axis, array.fill if array.fill == number.fill else None)


def _slice(equation: Equation, values: Sequence[Value]) -> Value:
    (value,), axis, params = values, values[0].axis, equation.params
    start, limit = params["start_indices"][axis], params["limit_indices"][axis]
    size = equation.shape(0)[axis]
    if start == 0 and limit == size and (not params["strides"] or params["strides"][axis] == 1):
        return value
    # a fixed number of first rows exists in both programs
    small = equation.small.params
    same = (start, limit) == (small["start_indices"][axis], small["limit_indices"][axis])
    return WHOLE if same and equation.ordered and not equation.single else MIXED


def _split(equation: Equation, values: Sequence[Value]) -> list[Value]:
    value = MIXED if equation.params["axis"] == values[0].axis else values[0]
    return [value] * len(equation.results)


def _dynamic_slice(equation: Equation, values: Sequence[Value]) -> Value:
    array, *starts = values
    if not array.is_rows or not all(start.is_whole for start in starts):
        return MIXED
    # the start of a slice of the whole axis is always 0
    same = equation.params["slice_sizes"][array.axis] == equation.shape(0)[array.axis]
    return array if same else MIXED


def _dynamic_update_slice(equation: Equation, values: Sequence[Value]) -> Value:
    array, update, *starts = values
    if not array.is_rows or not all(start.is_whole for start in starts):
        return MIXED
    same = equation.shape(1)[array.axis] == equation.shape(0)[array.axis]
    if not same or not update.is_rows or update.axis != array.axis:
        return MIXED
    return rows(array.axis, array.fill if array.fill == update.fill else None)


def _gather(equation: Equation, values: Sequence[Value]) -> Value:
    (array, index), numbers = values, equation.params["dimension_numbers"]
    rank = len(equation.results[0][0])
    index_axes = [axis for axis in range(rank) if axis not in numbers.offset_dims]
    if array.is_whole:
        return rows(index_axes[index.axis])
    if array.axis in numbers.operand_batching_dims:
        place = numbers.operand_batching_dims.index(array.axis)
        axis = numbers.start_indices_batching_dims[place]
        return rows(index_axes[axis]) if index.is_rows and index.axis == axis else MIXED
    moves = {*numbers.collapsed_slice_dims, *numbers.start_index_map}
    whole_axis = equation.params["slice_sizes"][array.axis] == equation.shape(0)[array.axis]
    if index.is_rows or array.axis in moves or not whole_axis:
        return MIXED
    left_out = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    kept = [axis for axis in range(len(equation.shape(0))) if axis not in left_out]
    return rows(numbers.offset_dims[kept.index(array.axis)])


def _scatter(equation: Equation, values: Sequence[Value]) -> Value:
    (array, index, update), numbers = values, equation.params["dimension_numbers"]
    window_axes = numbers.update_window_dims
    index_axes = [axis for axis in range(len(equation.shape(2))) if axis not in window_axes]
    if array.is_whole:
        # padded rows add 0 to any entry
        aligned = index.is_rows and update.is_rows and index_axes[index.axis] == update.axis
        adds = equation.name in ("scatter-add", "scatter_add") and update.fill == 0
        return WHOLE if aligned and adds else MIXED
    if not update.is_rows:
        return MIXED
    if array.axis in numbers.operand_batching_dims:
        place = numbers.operand_batching_dims.index(array.axis)
        axis = numbers.scatter_indices_batching_dims[place]
        aligned = index.is_rows and index.axis == axis and index_axes[axis] == update.axis
        return rows(array.axis) if aligned else MIXED
    left_out = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    kept = [axis for axis in range(len(equation.shape(0))) if axis not in left_out]
    moves = array.axis in (*left_out, *numbers.scatter_dims_to_operand_dims)
    if moves or not index.is_whole or window_axes[kept.index(array.axis)] != update.axis:
        return MIXED
    return rows(array.axis, 0 if array.fill == 0 == update.fill else None)


def _iota(equation: Equation, values: Sequence[Value]) -> Value:
    axis = equation.new_axis
    by_position = axis == equation.params["dimension"]
    return MIXED if axis is None or (by_position and not equation.ordered) else rows(axis)


def _random(equation: Equation, values: Sequence[Value]) -> Value:
    (key,) = values
    if key.is_rows:  # one key for each row: the axes of the keys come first
        return rows(key.axis)
    axis = equation.new_axis
    # Threefry computes each number from its position, so the first rows are those of a shorter
    # array. The other generators draw other numbers.
    config: Any = jax.config  # JAX declares its flags at run time
    is_threefry = str(equation.large.invars[0].aval.dtype) == "key<fry>"
    by_position = is_threefry and config.jax_threefry_partitionable
    if axis is None or not by_position or not equation.ordered:
        return MIXED
    # an array of several keys draws an array for each key
    keys = len(equation.shape(0))
    return rows(axis) if math.prod(equation.results[0][0][keys:axis]) == 1 else MIXED


#: rules of operations with rows among their operands
MOVES: Mapping[str, Any] = MappingProxyType(
    {
        "broadcast_in_dim": _broadcast,
        "reshape": _reshape,
        "squeeze": _squeeze,
        "transpose": _transpose,
        "rev": _reverse,
        "concatenate": _concatenate,
        "stack": _stack,
        "unstack": _unstack,
        "pad": _pad,
        "slice": _slice,
        "split": _split,
        "dynamic_slice": _dynamic_slice,
        "dynamic_update_slice": _dynamic_update_slice,
        "gather": _gather,
        **dict.fromkeys(
            ("scatter", "scatter-add", "scatter_add", "scatter-mul", "scatter_mul"), _scatter
        ),
        **dict.fromkeys(("scatter-min", "scatter_min", "scatter-max", "scatter_max"), _scatter),
        **dict.fromkeys(("random_bits", "random_split"), _random),
    }
)
#: rules of operations that create rows from values without rows
SOURCES: Mapping[str, Any] = MappingProxyType(
    {
        "broadcast_in_dim": _broadcast,
        "iota": _iota,
        "random_bits": _random,
        "random_split": _random,
    }
)
