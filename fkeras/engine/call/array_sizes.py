"""Sizes of the arrays that a call computes, read from the call's program before the call runs.

XLA ends the process for an array whose size does not fit 64 bits; an error is possible only before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from fkeras.engine.values.annotations import ClosedJaxpr, Jaxpr, Leaf
from fkeras.engine.values.dimensions import WORD
from fkeras.engine.values.spec import name_axis
from fkeras.programs.walk import all_equations, equations, programs_in

# numbers of an unknown size such as "2*d1 + 3", but not those of names
_NUMBER = re.compile(r"(?<!\w)\d+")


def largest_array(program: ClosedJaxpr, unit: int = 1) -> tuple[int, tuple]:
    """Returns the number of bytes and the shape of the largest array in a program.

    A window of a pooling counts as an array. An unknown size counts as 1, and an expression such as
    "1024*d1" as its largest number.

    Args:
        unit: the number that replaces an unknown size; a multiple of `unit` counts as its factor.
    """
    return max(_sizes(program, unit), key=lambda pair: pair[0], default=(0, ()))


def fixing_reshape(program: Jaxpr | ClosedJaxpr) -> tuple[tuple, tuple] | None:
    """Returns `(old shape, new shape)` of a reshape that fits one size of an unknown batch alone.

    JAX infers such a reshape without an error: with unknown sizes it cannot decide on the equation. A
    reshape of other unknown axes is checked when the model runs, as in Keras.
    """
    for equation in all_equations(program):
        if equation.primitive.name == "reshape":
            variables: tuple[Any, ...] = equation.invars[0], equation.outvars[0]
            old, new = (variable.aval.shape for variable in variables)
            fixed = all(isinstance(dim, int) for dim in new)
            # an axis of size 0 leaves nothing to reshape
            if fixed and 0 not in new and any(map(_counts_rows, old)):
                return old, new
    return None


def _counts_rows(size: Any) -> bool:
    """Returns whether an unknown size depends on the number of rows of a batch, as "2*b" does."""
    words = () if isinstance(size, int) else WORD.findall(str(size))
    return any(word.partition("_")[0] == name_axis(0) for word in words)


def _sizes(program: Jaxpr | ClosedJaxpr, unit: int) -> Iterator[tuple[int, tuple]]:
    for variable in program.invars:
        yield _size(variable.aval, unit)
    for equation in equations(program):
        for variable in equation.outvars:
            yield _size(variable.aval, unit, equation.params.get("window_dimensions", ()))
        for inner in programs_in(equation):
            yield from _sizes(inner, unit)


def _size(array: Leaf, unit: int, window: tuple = ()) -> tuple[int, tuple]:
    size = getattr(getattr(array, "dtype", None), "itemsize", 1)
    shape = tuple(getattr(array, "shape", ()))
    counts = ((size * _count(dims, unit), dims) for dims in (shape, tuple(window)))
    return max(counts, key=lambda pair: pair[0])


def _count(dims: tuple, unit: int) -> int:
    count = 1
    for dim in dims:
        if not isinstance(dim, int):
            count *= max(map(int, _NUMBER.findall(str(dim))), default=1)
        else:
            count *= dim if dim % unit else dim // unit
    return count
