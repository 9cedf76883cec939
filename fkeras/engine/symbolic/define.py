"""Declarations of operations: a plain function with Keras's arguments becomes an `Op`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

import jax
import jax.numpy as jnp

from fkeras.engine.call.node import TensorLike
from fkeras.engine.symbolic.op_types import ListOp, PairOp, TreeOp, TupleOp
from fkeras.engine.symbolic.operation import Op, Parameters, Unary
from fkeras.engine.symbolic.operation import binary as binary
from fkeras.engine.symbolic.operation import described as described
from fkeras.engine.symbolic.operation import to_array as to_array
from fkeras.engine.symbolic.operation import unary as unary

# Python loops are unrolled: each iteration, and each part of a result, is a step of the program.
# Larger programs take minutes to compile.
_STEPS = 1 << 14


def few(count: int) -> int:
    """Returns `count`, the number of steps of an unrolled program.

    Raises:
        ValueError: for too many steps.

    Example:
        >>> few(3)
        3
    """
    if count > _STEPS:
        raise ValueError(
            f"expected at most {_STEPS} parts or iterations, since each becomes a step of the "
            f"program, received {count}. Use fk.ops.scan or fk.ops.vectorized_map over an axis."
        )
    return count


@overload
def op(function: Callable[Parameters, jax.Array]) -> Op[Parameters]: ...


@overload
def op(
    function: Callable[Parameters, tuple[jax.Array, jax.Array]],
) -> PairOp[Parameters]: ...


@overload
def op(function: Callable[Parameters, tuple[jax.Array, ...]]) -> TupleOp[Parameters]: ...


@overload
def op(function: Callable[Parameters, list[jax.Array]]) -> ListOp[Parameters]: ...


@overload
def op(function: Callable[Parameters, Any]) -> Op[Parameters]: ...


def op(function: Callable[..., Any]) -> Any:
    """Declares a function as an operation of the same name that rejects masked inputs."""
    return Op(function.__name__, function)


def tree_op(function: Callable[Parameters, Any]) -> TreeOp[Parameters]:
    """Declares an operation as `op` does; the type of its results is not known to type checkers."""
    return TreeOp(function.__name__, function)


def elementwise(function: Callable[Parameters, Any]) -> Op[Parameters]:
    """Declares a function as an elementwise operation of the same name, which keeps masks."""
    return Op(function.__name__, function, elementwise=True)


def to_floats(x: TensorLike) -> jax.Array:
    """Converts `x` to an array of floats; integers and Booleans become float32."""
    # Keras's rule for functions such as sqrt; jax.numpy would return float64 for int64 under x64
    array = jnp.asarray(x)
    return array if jnp.issubdtype(array.dtype, jnp.inexact) else array.astype("float32")


def float_unary(
    name: str, function: Callable, doc: str, example: str = "", shown: str = ""
) -> Unary:
    """Creates an elementwise operation of one array that casts integers to float32; see `unary`."""
    return unary(name, lambda x: function(to_floats(x)), doc, example, shown)
