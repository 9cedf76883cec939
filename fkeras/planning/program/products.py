"""Matrix products and convolutions, with the copies of operands that libraries need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from fkeras.planning.program.emitter import Emitter, primitive_costs

Numbers = Sequence["int | None"]


def matrix_product(emit: Emitter, equation: Any, inputs: Numbers, widened: bool) -> Numbers:
    """Adds a `dot_general` and returns its output.

    Args:
        widened: whether the product is computed in float32.
    """
    (lhs_contracted, rhs_contracted), (lhs_batch, rhs_batch) = equation.params["dimension_numbers"]
    operands = []
    sides = ((lhs_contracted, lhs_batch), (rhs_contracted, rhs_batch))
    for number, variable, (contracted, batch) in zip(inputs, equation.invars, sides, strict=True):
        if number in emit.transposed:
            # a library reads transposed matrices as they lie in memory
            source, shape, permutation = emit.transposed[number]
            axes = [permutation[axis] for axis in contracted]
            if is_matrices(shape, axes, [permutation[axis] for axis in batch]):
                aval = jax.ShapeDtypeStruct(shape, variable.aval.dtype)
                operands.append(_operand(emit, source, aval, None, widened))
                continue
        matrices = is_matrices(variable.aval.shape, contracted, batch)
        order = None if matrices else (*batch, -1, *contracted)
        operands.append(_operand(emit, number, variable.aval, order, widened))
    return (_result(emit, "dot_general", operands, equation, widened),)


def is_matrices(shape: Sequence[int], contracted: Sequence[int], batch: Sequence[int]) -> bool:
    """Returns whether an array is a batch of matrices as it lies in memory.

    Example:
        >>> is_matrices((8, 5, 4), (2,), (0,)), is_matrices((8, 5, 4, 3), (3,), (0, 2))
        (True, False)
    """
    large = [axis for axis in range(len(shape)) if shape[axis] != 1]
    batch = [axis for axis in batch if shape[axis] != 1]
    contracted = [axis for axis in contracted if shape[axis] != 1]
    free = [axis for axis in large if axis not in batch and axis not in contracted]
    return large in ([*batch, *free, *contracted], [*batch, *contracted, *free])


def convolution(emit: Emitter, equation: Any, inputs: Numbers, widened: bool) -> Numbers:
    """Adds a `conv_general_dilated` and returns its output; the arguments are those of a product."""
    # compilers compute images with channels last and kernels with filters last
    numbers, operands = equation.params["dimension_numbers"], []
    dims = len(equation.outvars[0].aval.shape)
    channels_last = (0, dims - 1, *range(1, dims - 1))
    filters_last = (dims - 1, dims - 2, *range(dims - 2))
    wanted = (numbers.lhs_spec, channels_last), (numbers.rhs_spec, filters_last)
    for number, variable, (order, usual) in zip(inputs, equation.invars, wanted, strict=True):
        moved = None if tuple(order) == usual else tuple(order)
        operands.append(_operand(emit, number, variable.aval, moved, widened))
    result = _result(emit, "conv_general_dilated", operands, equation, widened)
    order = tuple(numbers.out_spec)
    if order == channels_last:
        return (result,)
    return (emit.once("move", "transpose", result, equation.outvars[0].aval, order),)


def _operand(
    emit: Emitter, number: int | None, aval: Any, order: tuple[int, ...] | None, widened: bool
) -> int | None:
    """Returns an operand with the type and the order of axes that the product needs."""
    if number is None:
        return None
    if widened:
        aval = jax.ShapeDtypeStruct(aval.shape, "float32")
        name = "convert_element_type"
        number = emit.once("elementwise", name, number, aval, "wide", in_place=True, floating=True)
    if order is not None:
        number = emit.once("move", "transpose", number, aval, order)
    return number


def _result(emit: Emitter, name: str, operands: Numbers, equation: Any, widened: bool) -> int:
    aval = equation.outvars[0].aval
    wide = jax.ShapeDtypeStruct(aval.shape, "float32") if widened else aval
    (output,) = emit.add("call", name, operands, (wide,), costs=primitive_costs(equation))
    if wide.dtype == aval.dtype:
        return output
    fields = {"expensive": True, "in_place": True, "floating": True}
    return emit.add("elementwise", "convert_element_type", (output,), (aval,), **fields)[0]
