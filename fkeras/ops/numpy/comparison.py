"""Elementwise comparisons, logic and bit operations; `isin` and `allclose`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, overload

import jax
import jax.numpy as jnp

from fkeras.engine.call.node import TensorLike
from fkeras.engine.layer.layer import Tensor
from fkeras.engine.symbolic.define import described, elementwise, op, to_array, unary
from fkeras.engine.symbolic.operation import Op
from fkeras.engine.symbolic.operators import (
    equal,
    greater,
    greater_equal,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    not_equal,
)

__all__ = (
    "allclose",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "equal",
    "greater",
    "greater_equal",
    "isclose",
    "isfinite",
    "isin",
    "isinf",
    "isnan",
    "isneginf",
    "isposinf",
    "isreal",
    "left_shift",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "not_equal",
    "right_shift",
)

isfinite = unary(
    "isfinite",
    jnp.isfinite,
    "Whether x is neither infinite nor NaN.",
    'isfinite([1.0, float("inf"), float("nan")])',
    "[ True False False]",
)
isinf = unary(
    "isinf",
    jnp.isinf,
    "Whether x is infinite.",
    'isinf([1.0, float("inf"), float("nan")])',
    "[False  True False]",
)
isnan = unary(
    "isnan",
    jnp.isnan,
    "Whether x is NaN.",
    'isnan([1.0, float("inf"), float("nan")])',
    "[False False  True]",
)
isneginf = unary(
    "isneginf",
    jnp.isneginf,
    "Whether x is minus infinity.",
    'isneginf([float("inf"), float("-inf")])',
    "[False  True]",
)
isposinf = unary(
    "isposinf",
    jnp.isposinf,
    "Whether x is plus infinity.",
    'isposinf([float("inf"), float("-inf")])',
    "[ True False]",
)
isreal = unary(
    "isreal", jnp.isreal, "Whether x has no imaginary part.", "isreal([1 + 2j, 3])", "[False  True]"
)
bitwise_invert = unary(
    "bitwise_invert", jnp.invert, "x with every bit inverted.", "bitwise_invert([0, 5])", "[-1 -6]"
)
# NumPy has two names for the inversion and for each shift
bitwise_not = unary(
    "bitwise_not", jnp.invert, "x with every bit inverted.", "bitwise_not([0, 5])", "[-1 -6]"
)


if TYPE_CHECKING:

    class _BitOp(Op[...]):
        @overload
        def __call__(
            self, x: Tensor | Sequence[Tensor], y: TensorLike, *, name: str | None = None
        ) -> Tensor: ...

        @overload
        def __call__(
            self, x: TensorLike, y: Tensor | Sequence[Tensor], *, name: str | None = None
        ) -> Tensor: ...

        @overload
        def __call__(
            self, x: TensorLike, y: TensorLike, *, name: str | None = None
        ) -> jax.Array: ...

        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

else:
    _BitOp = Op


def _of_bits(
    name: str, function: Callable[..., jax.Array], doc: str, example: str, shown: str
) -> _BitOp:
    def compute(x: TensorLike, y: TensorLike) -> jax.Array:
        return function(to_array(x), to_array(y))

    arguments = "x: integers or Booleans.\ny: integers or Booleans; the two broadcast."
    # Keras names the operands of bit operations x and y, so `binary` with x1 and x2 does not fit
    compute.__doc__ = described(doc, arguments, example, shown)
    return _BitOp(name, compute, elementwise=True)


bitwise_and = _of_bits(
    "bitwise_and", jnp.bitwise_and, "The bits that x and y have both.", "bitwise_and(6, 3)", "2"
)
bitwise_or = _of_bits(
    "bitwise_or", jnp.bitwise_or, "The bits that x or y has.", "bitwise_or(6, 3)", "7"
)
bitwise_xor = _of_bits(
    "bitwise_xor", jnp.bitwise_xor, "The bits that one of x and y has.", "bitwise_xor(6, 3)", "5"
)
bitwise_left_shift = _of_bits(
    "bitwise_left_shift", jnp.left_shift, "x * 2**y for integers.", "bitwise_left_shift(3, 2)", "12"
)
left_shift = _of_bits(
    "left_shift", jnp.left_shift, "x * 2**y for integers.", "left_shift(3, 2)", "12"
)
bitwise_right_shift = _of_bits(
    "bitwise_right_shift",
    jnp.right_shift,
    "floor(x / 2**y) for integers.",
    "bitwise_right_shift(13, 2)",
    "3",
)
right_shift = _of_bits(
    "right_shift", jnp.right_shift, "floor(x / 2**y) for integers.", "right_shift(13, 2)", "3"
)


@elementwise
def isclose(
    x1: TensorLike, x2: TensorLike, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> jax.Array:
    """Returns whether |x1 - x2| <= atol + rtol * |x2|, for each element.

    Args:
        rtol: relative tolerance.
        atol: absolute tolerance.
        equal_nan: whether NaN is close to NaN.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.isclose([1.0, 2.0], [1.0, 2.1]))
        [ True False]
    """
    return jnp.isclose(to_array(x1), to_array(x2), rtol, atol, equal_nan)


@op
def allclose(
    x1: TensorLike, x2: TensorLike, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> jax.Array:
    """Returns whether |x1 - x2| <= atol + rtol * |x2| for all elements.

    Args:
        rtol: relative tolerance.
        atol: absolute tolerance.
        equal_nan: whether NaN is close to NaN.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.allclose([1.0, 2.0], [1.0, 2.1], atol=0.2))
        True
    """
    return jnp.allclose(to_array(x1), to_array(x2), rtol, atol, equal_nan)


@op
def isin(
    x1: TensorLike, x2: TensorLike, assume_unique: bool = False, invert: bool = False
) -> jax.Array:
    """Returns whether each element of x1 occurs in x2.

    Args:
        x1: array of any shape.
        x2: the elements to search for, an array of any shape.
        assume_unique: whether neither array has repeated elements, which is faster.
        invert: whether to negate the result.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.isin([1, 2, 3], [3, 1]))
        [ True False  True]
    """
    return jnp.isin(to_array(x1), to_array(x2), assume_unique=assume_unique, invert=invert)
