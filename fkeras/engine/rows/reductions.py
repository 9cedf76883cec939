"""Rows of operations that combine several elements: sums, products of matrices, windows, sorting."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import jax.numpy as jnp
from jax.typing import DTypeLike

from fkeras.engine.rows.equation import Equation
from fkeras.engine.rows.values import MIXED, WHOLE, Value, rows


def _is_neutral(name: str, fill: float, dtype: DTypeLike) -> bool:
    """Returns whether a number in padded rows changes no result of a reduction."""
    if fill is None:
        return False
    if name in ("reduce_max", "reduce_min"):
        sign = 1 if name == "reduce_min" else -1
        if jnp.issubdtype(dtype, jnp.floating):
            return fill == sign * math.inf
        limits = jnp.iinfo(dtype)
        return fill == (limits.max if sign > 0 else limits.min)
    neutral = {"reduce_sum": 0, "reduce_prod": 1, "reduce_or": 0, "reduce_xor": 0}
    if name == "reduce_and":
        return jnp.issubdtype(dtype, jnp.bool_) and bool(fill)
    return name in neutral and fill == neutral[name]


def _reduce(equation: Equation, values: Sequence[Value]) -> Value:
    value, axes = values[0], equation.params["axes"]
    name, dtype = equation.name, equation.large.invars[0].aval.dtype
    if value.axis in axes:
        return WHOLE if _is_neutral(name, value.fill, dtype) else MIXED
    keeps = name in ("reduce_max", "reduce_min", "reduce_and", "reduce_or")
    fill = value.fill if keeps or (name == "reduce_sum" and value.fill == 0) else None
    return rows(value.axis - sum(axis < value.axis for axis in axes), fill)


def _cumulative(equation: Equation, values: Sequence[Value]) -> Value:
    (value,), params = values, equation.params
    if value.axis != params["axis"]:
        return rows(value.axis, 0 if value.fill == 0 and equation.name == "cumsum" else None)
    # the first rows do not depend on later rows
    return rows(value.axis) if equation.ordered and not params["reverse"] else MIXED


def _sort(equation: Equation, values: Sequence[Value]) -> list[Value]:
    axes = {value.axis if value.is_rows else -1 for value in values}
    apart = len(axes) == 1 and equation.params["dimension"] not in axes
    return [rows(max(axes)) if apart else MIXED] * len(equation.results)


def _top_k(equation: Equation, values: Sequence[Value]) -> list[Value]:
    axis = equation.params.get("axis", len(equation.shape(0)) - 1)
    return [MIXED if values[0].axis == axis else rows(values[0].axis)] * len(equation.results)


def _dot(equation: Equation, values: Sequence[Value]) -> Value:
    (left, right), (contracted, batch) = values, equation.params["dimension_numbers"]
    zero = 0 if 0 in (left.fill, right.fill) else None
    if left.is_rows and right.is_rows:
        pairs = tuple(zip(*contracted, strict=True))
        if (left.axis, right.axis) in pairs:
            return WHOLE if zero == 0 else MIXED
        pairs = tuple(zip(*batch, strict=True))
        place = (left.axis, right.axis)
        return rows(pairs.index(place), zero) if place in pairs else MIXED
    number = 0 if left.is_rows else 1
    axis, used = values[number].axis, (*contracted[number], *batch[number])
    if axis in used:
        return MIXED
    offset = len(batch[0])
    if number:
        offset += len(equation.shape(0)) - len(contracted[0]) - len(batch[0])
    free = [a for a in range(len(equation.shape(number))) if a not in used]
    return rows(offset + free.index(axis), zero)


def _convolution(equation: Equation, values: Sequence[Value]) -> Value:
    (left, right), params = values, equation.params
    numbers = params["dimension_numbers"]
    zero = 0 if 0 in (left.fill, right.fill) else None
    if left.is_rows and right.is_whole:
        by_batch = left.axis == numbers.lhs_spec[0] and params["batch_group_count"] == 1
        return rows(numbers.out_spec[0], zero) if by_batch else MIXED
    # the gradient of a kernel sums over the rows, as a convolution over input channels
    axes = (numbers.lhs_spec[1], numbers.rhs_spec[1])
    sums = (left.axis, right.axis) == axes and params["feature_group_count"] == 1
    return WHOLE if left.is_rows and right.is_rows and sums and zero == 0 else MIXED


def _window(equation: Equation, values: Sequence[Value]) -> Value:
    axes = {value.axis for value in values if value.is_rows}
    arrays = [v for v, o in zip(values, equation.large.invars, strict=True) if o.aval.shape]
    if len(axes) != 1 or not all(value.is_rows for value in arrays):
        return MIXED
    axis, params = axes.pop(), equation.params
    apart = params["window_dimensions"][axis] == 1 and params["window_strides"][axis] == 1
    apart = apart and tuple(params["padding"][axis]) == (0, 0)
    dilations = (params.get("base_dilation"), params.get("window_dilation"))
    return rows(axis) if apart and all(d is None or d[axis] == 1 for d in dilations) else MIXED


def _leading(equation: Equation, values: Sequence[Value], inner: int) -> list[Value]:
    """Returns the values of an operation on the last axes, for each entry of the leading axes."""
    axes = {value.axis if value.is_rows else -1 for value in values}
    rank = min(len(equation.shape(number)) for number in range(len(values)))
    apart = len(axes) == 1 and max(axes) < rank - inner
    return [rows(max(axes)) if apart else MIXED] * len(equation.results)


def _matrices(equation: Equation, values: Sequence[Value]) -> list[Value]:
    return _leading(equation, values, 2)


def _fourier(equation: Equation, values: Sequence[Value]) -> list[Value]:
    return _leading(equation, values, len(equation.params["fft_lengths"]))


def _same(equation: Equation, values: Sequence[Value]) -> list[Value]:
    return list(values)


_REDUCTIONS = (
    "reduce_sum",
    "reduce_prod",
    "reduce_max",
    "reduce_min",
    "reduce_and",
    "reduce_or",
    "reduce_xor",
    "argmax",
    "argmin",
)
_WINDOWS = (
    "reduce_window",
    "reduce_window_sum",
    "reduce_window_max",
    "reduce_window_min",
    "select_and_scatter_add",
    "select_and_gather_add",
)
_MATRICES = (
    "cholesky",
    "triangular_solve",
    "lu",
    "qr",
    "geqrf",
    "householder_product",
    "eigh",
    "eig",
    "svd",
    "tridiagonal",
    "schur",
)
REDUCTIONS: Mapping[str, Any] = MappingProxyType(
    {
        **dict.fromkeys(_REDUCTIONS, _reduce),
        **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"), _cumulative),
        **dict.fromkeys(_WINDOWS, _window),
        **dict.fromkeys(_MATRICES, _matrices),
        "sort": _sort,
        "top_k": _top_k,
        "dot_general": _dot,
        "conv_general_dilated": _convolution,
        "fft": _fourier,
        "optimization_barrier": _same,
    }
)
