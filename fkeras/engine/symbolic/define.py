"""Declarations of operations: a plain function with Keras's arguments becomes an `Op`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Generic, TypeAlias, TypeVar, overload

import jax
import jax.numpy as jnp

from fkeras.engine.call.node import TensorLike
from fkeras.engine.symbolic.operation import Op, Parameters, Rest, Unary
from fkeras.engine.symbolic.operation import binary as binary
from fkeras.engine.symbolic.operation import described as described
from fkeras.engine.symbolic.operation import to_array as to_array
from fkeras.engine.symbolic.operation import unary as unary
from fkeras.engine.values.annotations import Option, Tree

# `Op` declares that an operation returns a tensor for tensors, and an array for arrays. Type checkers
# have no form for "the same structure, with tensors in place of arrays", so each structure is named with
# the type of its tensors and the type of its arrays. At run time the classes are `Op`.
if TYPE_CHECKING:
    from fkeras.engine.symbolic.operators import KerasTensor

    OfTensors = TypeVar("OfTensors")
    OfArrays = TypeVar("OfArrays")

    class StructureOp(Op[Parameters], Generic[Parameters, OfTensors, OfArrays]):
        """The type of operations that return `OfTensors` for tensors, and `OfArrays` for arrays."""

        @overload
        def __call__(
            self: StructureOp[Concatenate[Any, Rest], OfTensors, OfArrays],
            x: KerasTensor | Sequence[KerasTensor],
            /,
            *args: Rest.args,
            **kwargs: Rest.kwargs,
        ) -> OfTensors: ...

        @overload
        def __call__(
            self,
            x: KerasTensor | Sequence[KerasTensor],
            /,
            *args: Tree,
            name: str,
            **kwargs: Option,
        ) -> OfTensors: ...

        @overload
        def __call__(
            self, *, x: KerasTensor | Sequence[KerasTensor], **kwargs: Option
        ) -> OfTensors: ...

        @overload
        def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> OfArrays: ...

        def __call__(self, *args: Tree, **kwargs: Option) -> Any: ...

    #: operations that return two arrays
    PairOp: TypeAlias = StructureOp[
        Parameters, tuple[KerasTensor, KerasTensor], tuple[jax.Array, jax.Array]
    ]
    #: operations that return a tuple of arrays
    TupleOp: TypeAlias = StructureOp[Parameters, tuple[KerasTensor, ...], tuple[jax.Array, ...]]
    #: operations that return a list of arrays
    ListOp: TypeAlias = StructureOp[Parameters, list[KerasTensor], list[jax.Array]]

    class TreeOp(Op[Parameters]):
        """The type of operations whose result has the structure of an argument or of a function's result."""

        @overload
        def __call__(self, *args: Tree, name: str, **kwargs: Option) -> Any: ...

        @overload
        def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Any: ...

        def __call__(self, *args: Tree, **kwargs: Option) -> Any: ...

else:
    PairOp = TupleOp = ListOp = TreeOp = Op


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


def to_common_floats(*arrays: TensorLike) -> list[jax.Array]:
    """Converts arrays to their common float dtype; to float32 if no array has floats."""
    converted = [jnp.asarray(x) for x in arrays]
    floats = [x for x in converted if jnp.issubdtype(x.dtype, jnp.inexact)]
    # a Python number adopts the dtype of the arrays
    strong = [x.dtype for x in floats if not x.weak_type] or [x.dtype for x in floats]
    # promote explicitly: strict dtype promotion rejects two float dtypes
    dtype = functools.reduce(jnp.promote_types, strong) if strong else jnp.dtype("float32")
    return [x.astype(dtype) for x in converted]


def float_unary(
    name: str, function: Callable, doc: str, example: str = "", shown: str = ""
) -> Unary:
    """Creates an elementwise operation of one array that casts integers to float32; see `unary`."""
    return unary(name, lambda x: function(to_floats(x)), doc, example, shown)
