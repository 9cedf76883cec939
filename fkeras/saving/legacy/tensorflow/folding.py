"""Constant-folds arithmetic on sizes and constants while a file is read."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeGuard

import jax.export
import numpy as np

from fkeras.engine import snake_case

#: an argument of a TensorFlow function: the description of a tensor, a constant, a symbolic size
#: (an integer for type checkers), or a list of these
Arg: TypeAlias = Mapping[str, Any] | np.ndarray | Sequence[Any] | complex | str | None
#: maximum length of a symbolic size: a hostile file could double an expression again and again
_LONGEST = 500


def is_size(value: Any) -> bool:
    """Whether a value is a symbolic size, which is known only when the model runs."""
    return jax.export.is_symbolic_dim(value)


def is_tensor(value: Arg) -> TypeGuard[Mapping[str, Any]]:
    """Whether a value is the description of a symbolic tensor."""
    return isinstance(value, Mapping) and value.get("class_name") == "__keras_tensor__"


def has_tensor(value: Arg) -> bool:
    """Whether a value, or a list in the value, contains a symbolic tensor."""
    if isinstance(value, list | tuple):
        return any(has_tensor(v) for v in value)
    return is_tensor(value)


def to_array(value: Arg) -> np.ndarray:
    """Returns an array of numbers, or of objects if the value contains symbolic sizes.

    Example:
        >>> to_array([1, 2]).dtype, to_array([]).dtype, to_array([0.5]).dtype
        (dtype('int64'), dtype('int64'), dtype('float64'))
    """
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, list | tuple):
        # An empty list is almost always an empty shape: integers, not NumPy's default float64.
        parts = [to_array(v) for v in value]
        return np.stack(parts) if parts else np.zeros((0,), "int64")
    if is_size(value):
        # NumPy must not convert a symbolic size: an assignment to an object array keeps the object.
        single = np.empty((), object)
        single[()] = value
        return single
    return np.asarray(value)


def to_value(array: Arg) -> Any:
    """Unpacks arrays without axes to a number or size, and object arrays without symbolic sizes."""
    if not isinstance(array, np.ndarray):
        return array.item() if isinstance(array, np.generic) else array
    if array.dtype == object and any(len(str(v)) > _LONGEST for v in array.ravel()):
        raise ValueError("the expressions of the symbolic sizes are too long")
    if array.dtype == object and not any(is_size(v) for v in array.ravel()):
        array = np.asarray(array.tolist()).reshape(array.shape)
    return array.item() if array.ndim == 0 else array


def _unstack(x: Arg, num: Arg = None, axis: int = 0) -> list:
    return [to_value(part) for part in np.moveaxis(to_array(x), axis, 0)]


def _cast(x: Arg, dtype: str) -> Any:
    x = to_array(x)
    # Symbolic sizes have no dtype.
    return x if x.dtype == object else x.astype(dtype)


def _full(shape: Sequence[Any], fill_value: Arg, dtype: str | None = None) -> Any:
    # `int` rejects symbolic sizes: NumPy needs the shape.
    return np.full(tuple(int(n) for n in shape), to_array(fill_value), dtype)


def _arange(
    start: int, stop: int | None = None, step: int | None = None, dtype: str | None = None
) -> Any:
    stop, start = (start, 0) if stop is None else (stop, start)
    return np.arange(start, stop, 1 if step is None else step, dtype=dtype)


def _plain(x: Arg) -> np.ndarray:
    array = to_array(x)
    if array.dtype == object:
        raise ValueError("powers of unknown sizes are not supported")
    return array


def _elementwise(function: Callable) -> Callable:
    return lambda *args: function(*(to_array(a) for a in args))


def _along(function: Callable) -> Callable:
    def reduced(x: Arg, axis: Arg = None, keepdims: bool = False) -> Any:
        axis = tuple(axis) if isinstance(axis, list) else axis
        return function(to_array(x), axis=axis, keepdims=keepdims)

    return reduced


_REDUCTIONS = ("Sum", "Prod", "Max", "Min", "All", "Any")
#: NumPy equivalents of Keras operations; operations outside this table are not folded
_FOLDS: Mapping[str, Callable[..., Any]] = types.MappingProxyType(
    {
        **{
            name: _elementwise(getattr(np, snake_case(name)))
            for name in (
                "Add",
                "Subtract",
                "Multiply",
                "TrueDivide",
                "FloorDivide",
                "Mod",
                "Maximum",
                "Minimum",
                "Negative",
                "Sqrt",
                "Square",
                "Exp",
                "Log",
                "Floor",
                "Ceil",
                "Round",
                "Sin",
                "Cos",
                "Equal",
                "NotEqual",
                "Greater",
                "GreaterEqual",
                "Less",
                "LessEqual",
                "LogicalAnd",
                "LogicalOr",
                "LogicalNot",
                "Where",
            )
        },
        "Power": lambda x, y: np.power(_plain(x), _plain(y)),
        "Rsqrt": _elementwise(lambda x: 1 / np.sqrt(x)),
        **{name: _along(getattr(np, name.lower())) for name in _REDUCTIONS},
        "Cast": _cast,
        "Concatenate": lambda xs, axis=0: np.concatenate([to_array(x) for x in xs], axis),
        "Stack": lambda x, axis=0: np.stack([to_array(v) for v in x], axis),
        "Unstack": _unstack,
        "ExpandDims": lambda x, axis: np.expand_dims(to_array(x), axis),
        "Squeeze": lambda x, axis=None: np.squeeze(to_array(x), axis),
        "Reshape": lambda x, newshape: np.reshape(to_array(x), newshape),
        "Transpose": lambda x, axes=None: np.transpose(to_array(x), axes),
        "Tile": lambda x, repeats: np.tile(to_array(x), repeats),
        "Flip": lambda x, axis=None: np.flip(to_array(x), axis),
        "Take": lambda x, indices, axis=0: np.take(to_array(x), to_array(indices), axis),
        "OnesLike": lambda x: np.ones_like(to_array(x)),
        "ZerosLike": lambda x: np.zeros_like(to_array(x)),
        "Full": _full,
        "Arange": _arange,
        "GetItem": lambda x, key: to_array(x)[tuple(key)],
    }
)


def folds(class_name: str) -> bool:
    """Whether an operation of this class can be constant-folded."""
    return class_name in _FOLDS


def fold(class_name: str, arguments: Mapping[str, Any]) -> Any:
    """Returns the result of an operation on constants and sizes.

    Args:
        class_name: Keras's class of the operation, for which `folds` is true.
        arguments: arguments of the operation by name, in order.

    Example:
        >>> fold("Add", {"x1": [1, 2], "x2": 3})
        array([4, 5])
    """
    # These calls may omit arguments; the other functions have NumPy's parameter names.
    if class_name in (*_REDUCTIONS, "Cast", "Unstack"):
        result = _FOLDS[class_name](**arguments)
    else:
        result = _FOLDS[class_name](*arguments.values())
    return result if isinstance(result, list) else to_value(np.asarray(result))
