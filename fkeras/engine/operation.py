"""Functions of arrays as layers, and the operators of symbolic tensors.

`Op` is a function that also takes symbolic tensors: there it records a call of an `Operation`, a
layer without weights. `KerasTensor` is a symbolic tensor whose operators are such functions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import jax.numpy as jnp

from fkeras.engine.calls import symbolic_arguments
from fkeras.engine.config import option
from fkeras.engine.layer import Layer, snake_case
from fkeras.engine.node import SymbolicTensor
from fkeras.engine.serialization import encode, resolve


@dataclasses.dataclass(frozen=True)
class Op:
    """A function of arrays that takes symbolic tensors too, and then records a node.

    Attributes:
        name: its name in `fkeras.ops`, with the namespace where it is in one ("image.resize");
            the node is named after it.
        function: the function of arrays.
        elementwise: whether output element i depends on input elements i alone, so that the mask
            of the input is the mask of the output. Other functions refuse a masked input.
        builtin: whether it is found again in `fkeras.ops` by its name.
    """

    name: str
    function: Callable = dataclasses.field(repr=False)
    elementwise: bool = False
    builtin: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "__doc__", self.function.__doc__)
        object.__setattr__(self, "__name__", self.name.rpartition(".")[2])
        # help() and inspect show the function's arguments
        object.__setattr__(self, "__wrapped__", self.function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = kwargs.pop("name", None)
        if symbolic_arguments(args, kwargs, None):
            return Operation(self, name=name)(*args, **kwargs)
        return self.function(*args, **kwargs)

    def __reduce__(self):
        if self.builtin:  # the functions of jax.numpy do not pickle by themselves
            return (_builtin, (self.name,))
        return (Op, (self.name, self.function, self.elementwise, self.builtin))

    def get_config(self) -> Any:
        return self.name if self.builtin else encode(self.function, f"fk.ops.lift({self.name})")


def _builtin(name: str) -> Op:
    home, _, last = f"fkeras.ops.{name}".rpartition(".")
    return resolve(last, home)


def _as_op(value: Any) -> Op:
    if isinstance(value, Op):
        return value
    if isinstance(value, str):
        return _builtin(value)
    if callable(value):
        return lift(value)
    raise TypeError(
        f"Operation: expected a function, received {type(value).__name__}. Use fk.ops.lift(fn)(x)."
    )


class Operation(Layer):
    """Applies a function of arrays; what `fk.ops` functions record.

    Args:
        op: the function.

    Example:
        >>> import fkeras as fk
        >>> y = fk.ops.tanh(fk.Input((3,)))
        >>> y.node.layer.op.name, y.shape
        ('tanh', (None, 3))
    """

    keras_module: ClassVar[str] = "fkeras.ops"
    autocast: ClassVar[bool] = False
    op: Op = option(convert=_as_op)

    @property
    def supports_masking(self) -> bool:  # type: ignore[override]
        return self.op.elementwise

    @property
    def where(self) -> str:
        return f"{self.name!r} (fk.ops.{self.op.name})" if self.name else f"fk.ops.{self.op.name}"

    @property
    def default_name(self) -> str:
        return snake_case(self.op.__name__) or "operation"

    def call(self, *args: Any, **options: Any) -> Any:
        return self.op.function(*args, **options)

    def get_config(self) -> dict[str, Any]:
        return {"name": self.name, "trainable": self.trainable, "op": self.op.get_config()}

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Operation:
        op = config["op"]
        if isinstance(op, Mapping):
            op = resolve(op["config"], op.get("module"), custom_objects)
        return cls(op, name=config.get("name"), trainable=config.get("trainable", True))


def lift(function: Callable, *, elementwise: bool = False, name: str | None = None) -> Op:
    """Makes any function of arrays work on symbolic tensors too, as one node of the graph.

    Args:
        function: maps arrays to an array, or to a list, tuple or dictionary of arrays.
        elementwise: whether it keeps masks; see `Op`.
        name: the node's name; the function's own where it is not given.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> y = fk.ops.lift(jnp.cumsum)(fk.Input((3,)), axis=1)
        >>> y.shape
        (None, 3)
    """
    if not callable(function):
        raise TypeError(
            f"lift: expected a function of arrays, received {type(function).__name__}. Write "
            "fk.ops.lift(jnp.cumsum)(x, axis=1)."
        )
    found = name or getattr(function, "__name__", "function")
    found = "lambda_function" if found == "<lambda>" else found
    return Op(found, function, elementwise, builtin=False)


def _getitem(x: Any, *entries: Any) -> Any:
    """x[...] with slices written as {"slice": [start, stop, step]}."""
    return x[tuple(_from_entry(e) for e in entries)]


def _from_entry(entry: Any) -> Any:
    if isinstance(entry, Mapping):
        return slice(*entry["slice"]) if "slice" in entry else ...
    return entry


def _to_entry(entry: Any) -> Any:
    if isinstance(entry, slice):
        return {"slice": [entry.start, entry.stop, entry.step]}
    return {"ellipsis": True} if entry is Ellipsis else entry


def to_array(x: Any) -> Any:
    """x, as an array where it is a list; a number keeps its weak type."""
    return jnp.asarray(x) if isinstance(x, list | tuple) else x


def unary(name: str, function: Callable, doc: str) -> Op:
    """The function of one array `x`, element by element, as an operation.

    Example:
        >>> unary("double", lambda x: 2 * x, "2 * x.")(x=3)
        6
    """

    def compute(x: Any) -> Any:
        return function(to_array(x))

    compute.__doc__ = doc
    return Op(name, compute, elementwise=True)


def binary(name: str, function: Callable, doc: str, *, elementwise: bool = True) -> Op:
    """The function of two arrays `x1` and `x2`, element by element, as an operation.

    Example:
        >>> binary("both", lambda a, b: a + b, "x1 + x2.")(x1=1, x2=2)
        3
    """

    def compute(x1: Any, x2: Any) -> Any:
        return function(to_array(x1), to_array(x2))

    compute.__doc__ = doc
    return Op(name, compute, elementwise=elementwise)


def _matmul(a: Any, b: Any) -> Any:
    # 8-bit integers overflow at once: Keras sums them in 32 bits
    bytes_only = all(getattr(x, "dtype", None) == jnp.int8 for x in (a, b))
    return jnp.matmul(a, b, preferred_element_type="int32" if bytes_only else None)


# the functions behind the operators; fkeras.ops has them under the same names
add = binary("add", jnp.add, "x1 + x2, element by element.")
subtract = binary("subtract", jnp.subtract, "x1 - x2, element by element.")
multiply = binary("multiply", jnp.multiply, "x1 * x2, element by element.")
true_divide = binary("true_divide", jnp.true_divide, "x1 / x2, element by element.")
floor_divide = binary("floor_divide", jnp.floor_divide, "floor(x1 / x2), element by element.")
mod = binary("mod", jnp.mod, "The remainder of x1 / x2, with the sign of x2.")
power = binary("power", jnp.power, "x1 ** x2, element by element.")
matmul = binary("matmul", _matmul, "The matrix product of x1 and x2.", elementwise=False)
negative = unary("negative", jnp.negative, "x with the other sign.")
absolute = unary("absolute", jnp.absolute, "The absolute value of x.")
less = binary("less", jnp.less, "x1 < x2, element by element.")
less_equal = binary("less_equal", jnp.less_equal, "x1 <= x2, element by element.")
greater = binary("greater", jnp.greater, "x1 > x2, element by element.")
greater_equal = binary("greater_equal", jnp.greater_equal, "x1 >= x2, element by element.")
equal = binary("equal", jnp.equal, "x1 == x2, element by element.")
not_equal = binary("not_equal", jnp.not_equal, "x1 != x2, element by element.")
logical_and = binary("logical_and", jnp.logical_and, "Whether both x1 and x2 are not zero.")
logical_or = binary("logical_or", jnp.logical_or, "Whether x1 or x2 is not zero.")
logical_xor = binary("logical_xor", jnp.logical_xor, "Whether one of x1 and x2 is not zero.")
logical_not = unary("logical_not", jnp.logical_not, "Whether x is zero.")
getitem = Op("getitem", _getitem)
# NumPy's names of the operators, as it asks for them in `array + tensor`
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


class KerasTensor(SymbolicTensor):
    """A symbolic value with operators: `x + y`, `x @ w`, `x[:, 0]` record nodes.

    `==` and `!=` compare identity, as the hash does; `fk.ops.equal` compares elements.

    Example:
        >>> import fkeras as fk
        >>> x = fk.Input((3, 4))
        >>> (2 * x[:, 0] + 1).shape
        (None, 4)
    """

    __slots__ = ()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        name = ufunc.__name__
        if name not in _UFUNCS or method != "__call__" or options:
            raise self._refuse(
                f"np.{name}",
                f"fk.ops.{name}(x) where fk.ops has it, otherwise fk.ops.lift(jnp.{name})(x)",
            )
        return _UFUNCS[name](*inputs)

    def __add__(self, other: Any) -> Any:
        return add(self, other)

    def __radd__(self, other: Any) -> Any:
        return add(other, self)

    def __sub__(self, other: Any) -> Any:
        return subtract(self, other)

    def __rsub__(self, other: Any) -> Any:
        return subtract(other, self)

    def __mul__(self, other: Any) -> Any:
        return multiply(self, other)

    def __rmul__(self, other: Any) -> Any:
        return multiply(other, self)

    def __truediv__(self, other: Any) -> Any:
        return true_divide(self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return true_divide(other, self)

    def __floordiv__(self, other: Any) -> Any:
        return floor_divide(self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return floor_divide(other, self)

    def __mod__(self, other: Any) -> Any:
        return mod(self, other)

    def __rmod__(self, other: Any) -> Any:
        return mod(other, self)

    def __pow__(self, other: Any) -> Any:
        return power(self, other)

    def __rpow__(self, other: Any) -> Any:
        return power(other, self)

    def __matmul__(self, other: Any) -> Any:
        return matmul(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return matmul(other, self)

    def __neg__(self) -> Any:
        return negative(self)

    def __abs__(self) -> Any:
        return absolute(self)

    def __invert__(self) -> Any:
        return logical_not(self)

    def __and__(self, other: Any) -> Any:
        return logical_and(self, other)

    def __rand__(self, other: Any) -> Any:
        return logical_and(other, self)

    def __or__(self, other: Any) -> Any:
        return logical_or(self, other)

    def __ror__(self, other: Any) -> Any:
        return logical_or(other, self)

    def __xor__(self, other: Any) -> Any:
        return logical_xor(self, other)

    def __rxor__(self, other: Any) -> Any:
        return logical_xor(other, self)

    def __lt__(self, other: Any) -> Any:
        return less(self, other)

    def __le__(self, other: Any) -> Any:
        return less_equal(self, other)

    def __gt__(self, other: Any) -> Any:
        return greater(self, other)

    def __ge__(self, other: Any) -> Any:
        return greater_equal(self, other)

    def __getitem__(self, index: Any) -> Any:
        entries = index if isinstance(index, tuple) else (index,)
        return getitem(self, *(_to_entry(e) for e in entries))

    def __iter__(self) -> Any:
        raise self._refuse("a loop", "[x[i] for i in range(n)] with a number n that you know")
