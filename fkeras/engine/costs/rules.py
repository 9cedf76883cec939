"""Floating-point operations of JAX's primitives, as functions of shapes.

The rules agree with the cost analysis of XLA: a multiplication and an addition are two operations,
an elementwise operation counts once for each element, and functions such as `exp` are counted
apart, as transcendentals. Moving, reshaping and indexing are free.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from jax.core import ShapedArray

from fkeras.engine.values.annotations import JaxprEqn
from fkeras.programs.primitives import ELEMENTWISE, MOVES

# reductions by a scalar operation, and the operation's cost
_REDUCTIONS = MappingProxyType(
    {
        **dict.fromkeys(("reduce_sum", "reduce_max", "reduce_min", "reduce_prod"), 1),
        **dict.fromkeys(("reduce_and", "reduce_or", "reduce_xor"), 1),
        **dict.fromkeys(("argmax", "argmin"), 9),
    }
)
_WINDOWS = ("reduce_window_sum", "reduce_window_max", "reduce_window_min")
# one operation for each element; XLA counts the quadratic form that only some devices run
_CUMULATIVE = ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
_SCATTERS = (
    "scatter-add",
    "scatter_add",
    "scatter-sub",
    "scatter-mul",
    "scatter_mul",
    "scatter-min",
    "scatter_min",
    "scatter-max",
    "scatter_max",
    "scatter_sub",
)


class Count(NamedTuple):
    """Operations of one primitive or program.

    Attributes:
        flops: floating-point operations.
        transcendentals: evaluations of functions such as `exp`.
    """

    flops: float
    transcendentals: float = 0.0


def size(aval: ShapedArray) -> int:
    """Returns the number of elements of an array's shape."""
    return math.prod(aval.shape)


def primitive_count(equation: JaxprEqn) -> Count | None:
    """Returns the operations of an equation of a jaxpr; None for a primitive without a rule."""
    name = equation.primitive.name
    rule = _RULES.get(name)
    if rule is None:
        return None
    inputs: Shapes = [variable.aval for variable in equation.invars]
    outputs: Shapes = [variable.aval for variable in equation.outvars]
    return rule(inputs, outputs, equation.params)


Shapes: TypeAlias = Sequence[Any]
Rule = Callable[[Shapes, Shapes, Mapping[str, Any]], Count]


def _per_element(flops: float, transcendentals: float = 0.0) -> Rule:
    def rule(inputs: Shapes, outputs: Shapes, params: Mapping[str, Any]) -> Count:
        elements = size(outputs[0])
        return Count(flops * elements, transcendentals * elements)

    return rule


def _reduction(cost: float) -> Rule:
    def rule(inputs: Shapes, outputs: Shapes, params: Mapping[str, Any]) -> Count:
        return Count(cost * (size(inputs[0]) - size(outputs[0])))

    return rule


def _cumulative(inputs: Shapes, outputs: Shapes, params: Mapping[str, Any]) -> Count:
    return Count(size(outputs[0]))


def _scatter(inputs: Shapes, outputs: Shapes, params: Mapping[str, Any]) -> Count:
    return Count(size(inputs[-1]))


def _integer_power(inputs: Shapes, outputs: Shapes, params: Mapping[str, Any]) -> Count:
    exponent = abs(params["y"])
    multiplications = exponent.bit_length() - 1 + exponent.bit_count() - 1 if exponent else 0
    return Count((multiplications + (params["y"] < 0)) * size(outputs[0]))


def _dot(inputs: Shapes, outputs: Shapes, params: Mapping[str, Any]) -> Count:
    (contracted, _), _ = params["dimension_numbers"]
    return Count(2 * size(outputs[0]) * math.prod(inputs[0].shape[axis] for axis in contracted))


def _ragged_dot(inputs: Shapes, outputs: Shapes, params: Mapping[str, Any]) -> Count:
    numbers = params["ragged_dot_dimension_numbers"]
    (contracted, _), _ = numbers.dot_dimension_numbers
    products = size(outputs[0]) * math.prod(inputs[0].shape[axis] for axis in contracted)
    # each row belongs to one group: the sum over the rows of a group, not over all rows
    if numbers.lhs_ragged_dimensions[0] in contracted:
        products //= inputs[2].shape[-1]
    return Count(2 * products)


def _convolution(inputs: Shapes, outputs: Shapes, params: Mapping[str, Any]) -> Count:
    lhs, rhs, out = inputs[0].shape, inputs[1].shape, outputs[0].shape
    numbers = params["dimension_numbers"]
    batch, features = out[numbers.out_spec[0]], out[numbers.out_spec[1]]
    products = math.prod(
        _valid_products(
            lhs[numbers.lhs_spec[2 + axis]],
            rhs[numbers.rhs_spec[2 + axis]],
            out[numbers.out_spec[2 + axis]],
            params["padding"][axis][0],
            params["window_strides"][axis],
            params["lhs_dilation"][axis],
            params["rhs_dilation"][axis],
        )
        for axis in range(len(out) - 2)
    )
    # the kernel has the channels of one group
    channels = rhs[numbers.rhs_spec[1]]
    return Count(2 * batch * features * channels * products / params["batch_group_count"])


def _valid_products(
    size: int, kernel: int, out: int, low: int, stride: int, dilation: int, kernel_dilation: int
) -> int:
    """Returns how many products of one axis read an element of the input, not padding or a hole."""
    count = 0
    last = (size - 1) * dilation
    for place in range(kernel):
        # positions in the padded and dilated input: start, start + stride, ...
        start = place * kernel_dilation - low
        first = max(0, -(start // stride)) if start < 0 else 0
        final = min(out - 1, (last - start) // stride) if last >= start else -1
        if final < first:
            continue
        if dilation == 1:
            count += final - first + 1
        else:
            positions = range(start + first * stride, start + final * stride + 1, stride)
            count += sum(position % dilation == 0 for position in positions)
    return count


def _window(inputs: Shapes, outputs: Shapes, params: Mapping[str, Any]) -> Count:
    return Count(size(outputs[0]) * (math.prod(params["window_dimensions"]) - 1))


def _select_and_scatter(inputs: Shapes, outputs: Shapes, params: Mapping[str, Any]) -> Count:
    # the source's elements search their windows and are added
    return Count(size(inputs[0]) * math.prod(params["window_dimensions"]))


def _sort(inputs: Shapes, outputs: Shapes, params: Mapping[str, Any]) -> Count:
    elements = size(inputs[0])
    return Count(elements * math.ceil(math.log2(max(elements, 2))))


def _fft(inputs: Shapes, outputs: Shapes, params: Mapping[str, Any]) -> Count:
    length = math.prod(params["fft_lengths"])
    transforms = max(size(inputs[0]), size(outputs[0])) / max(length, 1)
    return Count(4 * transforms * length * math.log2(max(length, 2)))


def _cholesky(inputs: Shapes, outputs: Shapes, params: Mapping[str, Any]) -> Count:
    return Count(size(inputs[0]) * inputs[0].shape[-1] / 3)


def _triangular_solve(inputs: Shapes, outputs: Shapes, params: Mapping[str, Any]) -> Count:
    return Count(size(inputs[1]) * inputs[0].shape[-1])


_RULES: Mapping[str, Rule] = MappingProxyType(
    {
        **dict.fromkeys(MOVES, _per_element(0)),
        **{name: _per_element(*costs) for name, costs in ELEMENTWISE.items() if costs is not None},
        **{name: _reduction(cost) for name, cost in _REDUCTIONS.items()},
        **dict.fromkeys(_WINDOWS, _window),
        **dict.fromkeys(_CUMULATIVE, _cumulative),
        **dict.fromkeys(_SCATTERS, _scatter),
        "integer_pow": _integer_power,
        "dot_general": _dot,
        "ragged_dot_general": _ragged_dot,
        "conv_general_dilated": _convolution,
        "select_and_scatter_add": _select_and_scatter,
        "sort": _sort,
        "fft": _fft,
        "cholesky": _cholesky,
        "triangular_solve": _triangular_solve,
    }
)
