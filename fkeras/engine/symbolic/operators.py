"""`KerasTensor`: a symbolic tensor whose operators record functions of `fkeras.ops`.

The operators' functions live here, below the package `fkeras.ops`, which exports them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine.call.node import SymbolicTensor, TensorLike
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.engine.symbolic.operation import Binary, Op, binary, unary
from fkeras.engine.values.annotations import Leaf, Option, Tree
from fkeras.nn.numerics.indices import check_constant_indices
from fkeras.nn.numerics.slopes import divide
from fkeras.nn.numerics.slopes import power as _power


def _getitem(x: Leaf, *entries: Any) -> Any:
    """Indexes x by `entries`, the operation that `x[...]` of a symbolic tensor records.

    Args:
        x: an array.
        *entries: numbers, arrays, None, and slices written as `{"slice": [start, stop, step]}`.

    Raises:
        IndexError: for a constant index outside of its axis.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> print(fk.ops.getitem(jnp.arange(5), {"slice": [1, None, 2]}))
        [1 3]
    """
    return index(x, tuple(_from_entry(e) for e in entries))


def index(x: Leaf, key: tuple) -> Any:
    """Returns x[key]; constant indices outside of an axis are an error, computed indices give NaN.

    Example:
        >>> print(index(jnp.array([1.0, 2.0]), (jnp.array([0, 2]),)))
        [ 1. nan]
    """
    # numbers of axes of x that the entries index: 0 for None, the rank for a Boolean array
    widths = [_width(entry) for entry in key]
    axis = 0
    for entry, width in zip(key, widths, strict=True):
        if entry is Ellipsis:
            axis = max(axis, x.ndim - (sum(widths) - axis))
        elif width == 1 and axis < x.ndim and not isinstance(entry, slice) and _is_integer(entry):
            check_constant_indices("x[...]", x, entry, axis)
        axis += width
    if any(isinstance(entry, np.ndarray | jax.Array | list) for entry in key):
        return x.at[key].get(mode="fill")
    return x[key]


def _width(entry: Any) -> int:
    if entry is None or entry is Ellipsis:
        return 0
    return 1 if isinstance(entry, slice) or _is_integer(entry) else np.ndim(entry)


def _is_integer(entry: Any) -> bool:
    return np.result_type(getattr(entry, "dtype", None) or np.asarray(entry)).kind in "iu"


def _from_entry(entry: Any) -> Any:
    if isinstance(entry, Mapping):
        return slice(*entry["slice"]) if "slice" in entry else ...
    return entry


# slices are not JSON data, and nodes are saved in files
def _to_entry(entry: Any) -> Any:
    if isinstance(entry, slice):
        return {"slice": [entry.start, entry.stop, entry.step]}
    return {"ellipsis": True} if entry is Ellipsis else entry


def _matmul(a: Leaf, b: Leaf) -> Any:
    # as in Keras, int8 products are summed in int32, since sums in int8 overflow
    bytes_only = all(getattr(x, "dtype", None) == jnp.int8 for x in (a, b))
    return jnp.matmul(a, b, preferred_element_type="int32" if bytes_only else None)


add = binary("add", jnp.add, "x1 + x2, element by element.", "add([1, 2], 3)", "[4 5]")
subtract = binary(
    "subtract", jnp.subtract, "x1 - x2, element by element.", "subtract([1, 2], 3)", "[-2 -1]"
)
multiply = binary(
    "multiply", jnp.multiply, "x1 * x2, element by element.", "multiply([1, 2], 3)", "[3 6]"
)
true_divide = binary(
    "true_divide",
    divide,
    "x1 / x2, element by element.",
    "true_divide([1, 2], 4)",
    "[0.25 0.5 ]",
)
floor_divide = binary(
    "floor_divide",
    jnp.floor_divide,
    "floor(x1 / x2), element by element.",
    "floor_divide([-7, 7], 2)",
    "[-4  3]",
)
mod = binary(
    "mod", jnp.mod, "The remainder of x1 / x2, with the sign of x2.", "mod([-7, 7], 3)", "[2 1]"
)
power = binary("power", _power, "x1 ** x2, element by element.", "power([2, 3], 2)", "[4 9]")
matmul = binary(
    "matmul",
    _matmul,
    "The matrix product of x1 and x2.",
    "matmul([[1, 2], [3, 4]], [1, 1])",
    "[3 7]",
    elementwise=False,
)
negative = unary("negative", jnp.negative, "x with the other sign.", "negative([1, -2])", "[-1  2]")
absolute = unary("absolute", jnp.absolute, "The absolute value of x.", "absolute([1, -2])", "[1 2]")
less = binary(
    "less", jnp.less, "x1 < x2, element by element.", "less([1, 2, 3], 2)", "[ True False False]"
)
less_equal = binary(
    "less_equal",
    jnp.less_equal,
    "x1 <= x2, element by element.",
    "less_equal([1, 2, 3], 2)",
    "[ True  True False]",
)
greater = binary(
    "greater",
    jnp.greater,
    "x1 > x2, element by element.",
    "greater([1, 2, 3], 2)",
    "[False False  True]",
)
greater_equal = binary(
    "greater_equal",
    jnp.greater_equal,
    "x1 >= x2, element by element.",
    "greater_equal([1, 2, 3], 2)",
    "[False  True  True]",
)
equal = binary(
    "equal",
    jnp.equal,
    "x1 == x2, element by element.",
    "equal([1, 2, 3], 2)",
    "[False  True False]",
)
not_equal = binary(
    "not_equal",
    jnp.not_equal,
    "x1 != x2, element by element.",
    "not_equal([1, 2, 3], 2)",
    "[ True False  True]",
)
logical_and = binary(
    "logical_and",
    jnp.logical_and,
    "Whether both x1 and x2 are not zero.",
    "logical_and([0, 1, 2], [1, 0, 1])",
    "[False False  True]",
)
logical_or = binary(
    "logical_or",
    jnp.logical_or,
    "Whether x1 or x2 is not zero.",
    "logical_or([0, 1, 0], [1, 0, 0])",
    "[ True  True False]",
)
logical_xor = binary(
    "logical_xor",
    jnp.logical_xor,
    "Whether one of x1 and x2 is not zero.",
    "logical_xor([0, 1, 2], [1, 0, 1])",
    "[ True  True False]",
)
logical_not = unary(
    "logical_not",
    jnp.logical_not,
    "Whether x is zero.",
    "logical_not([0, 1, 2])",
    "[ True False False]",
)
getitem = Op("getitem", _getitem)
# by the names of NumPy's ufuncs: `array + tensor` calls `tensor.__array_ufunc__(np.add, ...)`;
# without this method NumPy would try to convert the tensor to an array
_UFUNCS = MappingProxyType(
    {
        "add": add,
        "subtract": subtract,
        "multiply": multiply,
        "divide": true_divide,
        "floor_divide": floor_divide,
        "remainder": mod,
        "power": power,
        "matmul": matmul,
        "less": less,
        "less_equal": less_equal,
        "greater": greater,
        "greater_equal": greater_equal,
        "bitwise_and": logical_and,
        "bitwise_or": logical_or,
        "bitwise_xor": logical_xor,
    }
)

Operator: TypeAlias = Callable[["KerasTensor", TensorLike], "KerasTensor"]


def _operators(op: Binary) -> tuple[Operator, Operator]:
    """Returns the methods of an operator: `tensor + other` and `other + tensor`."""

    @hides_internal_frames
    def operator(self: KerasTensor, other: TensorLike) -> KerasTensor:
        return op(self, other)

    @hides_internal_frames
    def reflected(self: KerasTensor, other: TensorLike) -> KerasTensor:
        return op(other, self)

    return operator, reflected


class KerasTensor(SymbolicTensor):
    """A symbolic value with operators: `x + y`, `x @ w`, `x[:, 0]` record nodes.

    `==` and `!=` compare identity, so tensors can be keys of dictionaries; `fk.ops.equal` compares
    elements.

    Example:
        >>> import fkeras as fk
        >>> x = fk.Input((3, 4))
        >>> (2 * x[:, 0] + 1).shape
        (None, 4)
    """

    __slots__ = ()

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Tree, **options: Option
    ) -> Any:
        name = ufunc.__name__
        if name not in _UFUNCS or method != "__call__" or options:
            # methods such as np.add.reduce, and options such as `out`, have no symbolic form
            raise self._numbers_error(
                f"np.{name}",
                f"fk.ops.{name}(x) if fk.ops has the function, otherwise fk.ops.lift(jnp.{name})(x)",
            )
        return _UFUNCS[name](*inputs)

    __add__, __radd__ = _operators(add)
    __sub__, __rsub__ = _operators(subtract)
    __mul__, __rmul__ = _operators(multiply)
    __truediv__, __rtruediv__ = _operators(true_divide)
    __floordiv__, __rfloordiv__ = _operators(floor_divide)
    __mod__, __rmod__ = _operators(mod)
    __pow__, __rpow__ = _operators(power)
    __matmul__, __rmatmul__ = _operators(matmul)
    __and__, __rand__ = _operators(logical_and)
    __or__, __ror__ = _operators(logical_or)
    __xor__, __rxor__ = _operators(logical_xor)
    # Python reflects a comparison to the opposite comparison
    __lt__ = _operators(less)[0]
    __le__ = _operators(less_equal)[0]
    __gt__ = _operators(greater)[0]
    __ge__ = _operators(greater_equal)[0]

    def __neg__(self) -> KerasTensor:
        return negative(self)

    def __abs__(self) -> KerasTensor:
        return absolute(self)

    def __invert__(self) -> KerasTensor:
        return logical_not(self)

    @hides_internal_frames
    def __getitem__(self, index: Any) -> KerasTensor:
        entries = index if isinstance(index, tuple) else (index,)
        return getitem(self, *(_to_entry(e) for e in entries))

    # without __iter__, Python would call __getitem__ with 0, 1, 2, ... and never stop
    def __iter__(self) -> Iterator[KerasTensor]:
        raise self._numbers_error("a loop", "[x[i] for i in range(n)] with a known number n")
