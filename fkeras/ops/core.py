"""Dtypes, conversions and shapes; slicing and scattering."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fkeras.engine.call.node import SymbolicTensor, TensorLike, is_symbolic
from fkeras.engine.symbolic.define import elementwise, op, to_array
from fkeras.engine.values.argument_types import DTypeLike, Number
from fkeras.nn.numerics.indices import check_constant_indices

__all__ = (
    "cast",
    "convert_to_numpy",
    "convert_to_tensor",
    "dtype",
    "is_tensor",
    "saturate_cast",
    "scatter",
    "scatter_update",
    "shape",
    "slice",
    "slice_update",
    "stop_gradient",
)


def shape(x: TensorLike) -> tuple[int | None, ...]:
    """Returns the shape of x as a tuple; None for unknown sizes of a symbolic tensor.

    Args:
        x: an array, a list, or a symbolic tensor.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.shape(fk.Input((3,)))
        (None, 3)
    """
    return x.shape if isinstance(x, SymbolicTensor) else jnp.shape(to_array(x))


def dtype(x: TensorLike) -> str:
    """Returns the name of the dtype of x.

    Args:
        x: an array, a number, a list, or a symbolic tensor.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.dtype(fk.Input((3,)))
        'float32'
    """
    dtype = getattr(x, "dtype", None)
    return np.dtype(jnp.asarray(x).dtype if dtype is None else dtype).name


def is_tensor(x: Any) -> bool:
    """Returns whether x is a JAX array or tracer; False for symbolic tensors.

    Args:
        x: any object.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.ops.is_tensor(jnp.ones(2)), fk.ops.is_tensor(fk.Input((3,)))
        (True, False)
    """
    return isinstance(x, jax.Array)


def convert_to_numpy(x: TensorLike) -> np.ndarray:
    """Returns x as a NumPy array.

    Args:
        x: an array, a number, or nested lists of numbers.

    Raises:
        TypeError: if x is a symbolic tensor, which has no values.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.ops.convert_to_numpy(jnp.arange(3))
        array([0, 1, 2], dtype=int32)
    """
    if is_symbolic(x):
        raise TypeError(
            "convert_to_numpy: expected an array, received a symbolic tensor, which has no "
            "values. Create a model and call it on arrays first."
        )
    # a copy: `np.asarray` of a JAX array is read-only
    return np.array(x)


@elementwise
def convert_to_tensor(
    x: TensorLike,
    dtype: DTypeLike | None = None,
    sparse: bool | None = None,
    ragged: bool | None = None,
) -> jax.Array:
    """Returns x as an array.

    Args:
        x: an array, a number, or nested lists of numbers.
        dtype: the dtype; None for the dtype of x.
        sparse: None or False; sparse arrays are not supported.
        ragged: None or False; ragged arrays are not supported.

    Raises:
        ValueError: if `sparse` or `ragged` is true.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.convert_to_tensor([1, 2], "float32")
        Array([1., 2.], dtype=float32)
    """
    if sparse or ragged:
        raise ValueError(
            "convert_to_tensor: expected a dense array, received sparse or ragged True. Leave "
            "them out, and pad rows of different lengths."
        )
    return jnp.asarray(x, dtype)


@elementwise
def cast(x: TensorLike, dtype: DTypeLike) -> jax.Array:
    """Returns x cast to a dtype.

    Args:
        x: an array, a number, or nested lists of numbers.
        dtype: the dtype; a cast of floats to integers truncates towards 0.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.cast([1.9, -1.9], "int32")
        Array([ 1, -1], dtype=int32)
    """
    return jnp.asarray(x, dtype)


@elementwise
def saturate_cast(x: TensorLike, dtype: DTypeLike) -> jax.Array:
    """Returns x cast to a dtype; values out of range are clipped to the dtype's limits.

    Args:
        x: an array, a number, or nested lists of numbers.
        dtype: the dtype.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.ops.saturate_cast(jnp.array([-1.0, 300.0]), "uint8")
        Array([  0, 255], dtype=uint8)
    """
    x = jnp.asarray(x)
    (in_least, in_most), (least, most) = _limits(x.dtype), _limits(dtype)
    # x's dtype may round a limit of the target out of range (2**31 - 1 becomes 2**31 in float32):
    # step back to the next representable number
    low = np.asarray(max(in_least, least)).astype(x.dtype)
    high = np.asarray(min(in_most, most)).astype(x.dtype)
    low = np.nextafter(low, x.dtype.type(0)) if low < least else low
    high = np.nextafter(high, x.dtype.type(0)) if high > most else high
    # booleans fit every dtype
    bounded = x if x.dtype.kind == "b" else jnp.clip(x, low, high)
    return bounded.astype(dtype)


def _limits(dtype: DTypeLike) -> tuple[float, float]:
    dtype = jnp.dtype(dtype)
    if dtype.kind == "b":
        return 0, 1
    if jnp.issubdtype(dtype, jnp.integer):
        return int(jnp.iinfo(dtype).min), int(jnp.iinfo(dtype).max)
    return float(jnp.finfo(dtype).min), float(jnp.finfo(dtype).max)


@elementwise
def stop_gradient(variable: TensorLike) -> jax.Array:
    """Returns the array unchanged, with a gradient of 0.

    Args:
        variable: array of any shape.

    Example:
        >>> import jax, fkeras as fk
        >>> jax.grad(lambda x: x * fk.ops.stop_gradient(x))(3.0)
        Array(3., dtype=float32, weak_type=True)
    """
    return jax.lax.stop_gradient(to_array(variable))


@op
def slice(
    inputs: TensorLike, start_indices: Sequence[Number] | jax.Array, shape: Sequence[int]
) -> jax.Array:
    """Returns the block of x with the given start indices and shape; size -1 extends to the end.

    Args:
        inputs: array of any shape.
        start_indices: one integer per axis, which may be traced.
        shape: the size of the block along each axis.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.ops.slice(jnp.arange(9).reshape(3, 3), (1, 0), (2, -1))
        Array([[3, 4, 5],
               [6, 7, 8]], dtype=int32)
    """
    inputs = jnp.asarray(inputs)
    _check_ranks("slice", inputs, start_indices, shape)
    starts = [*zip(shape, inputs.shape, start_indices, strict=True)]
    if any(size == -1 and isinstance(start, Tracer) for size, _, start in starts):
        raise ValueError(
            "fk.ops.slice: shape: -1 extends to the end of an axis, so the size of the block depends "
            "on the value of a start index, which is traced, and shapes are static. Pass the size "
            "in the place of -1, or start indices that are integers."
        )
    sizes = tuple(total - start if size == -1 else size for size, total, start in starts)
    _check_block("slice", inputs, start_indices, sizes)
    return jax.lax.dynamic_slice(inputs, start_indices, sizes)


@op
def slice_update(
    inputs: TensorLike, start_indices: Sequence[Number] | jax.Array, updates: TensorLike
) -> jax.Array:
    """Returns the inputs with the block at the start indices replaced by the updates.

    Args:
        inputs: array of any shape.
        start_indices: one integer per axis, which may be traced.
        updates: the block, with as many axes as the inputs.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.ops.slice_update(jnp.zeros(4), [1], jnp.ones(2))
        Array([0., 1., 1., 0.], dtype=float32)
    """
    inputs, updates = jnp.asarray(inputs), jnp.asarray(updates)
    _check_ranks("slice_update", inputs, start_indices, updates.shape)
    _check_block("slice_update", inputs, start_indices, updates.shape)
    return jax.lax.dynamic_update_slice(inputs, updates, start_indices)


def _check_ranks(
    name: str, x: jax.Array, starts: Sequence[Number] | jax.Array, sizes: Sequence[Any]
) -> None:
    if not len(starts) == len(sizes) == x.ndim:
        raise ValueError(
            f"fk.ops.{name}: expected a start index and a size for each of the {x.ndim} axes, "
            f"received {len(starts)} start indices and {len(sizes)} sizes. Give 0 and the size of "
            "the axis for an axis that stays whole."
        )


def _check_block(
    name: str, x: jax.Array, starts: Sequence[Number] | jax.Array, sizes: Sequence[Any]
) -> None:
    """Rejects a block that leaves the array: JAX would move the block inside."""
    for axis, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        if isinstance(size, int):
            check_constant_indices(name, x, start, axis, size)


@op
def scatter(indices: TensorLike, values: TensorLike, shape: Sequence[int]) -> jax.Array:
    """Returns an array of zeros to which the values are added at the indices.

    Args:
        indices: integers, (n, k): for each value, the indices of the first k axes.
        values: (n, *rest).
        shape: the shape of the result.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.ops.scatter([[1], [3]], jnp.array([5.0, 7.0]), (4,))
        Array([0., 5., 0., 7.], dtype=float32)
    """
    values = jnp.asarray(values)
    zeros = jnp.zeros(shape, values.dtype)
    # as in Keras, values with equal indices add up
    return zeros.at[_index_tuple("scatter", zeros, indices)].add(values)


def _index_tuple(name: str, x: jax.Array, indices: TensorLike) -> tuple[jax.Array, ...]:
    """Checks indices (..., k) of an array and returns them as a tuple with one array per axis."""
    # the values of a NumPy array can be checked while a program is traced
    constant = indices if isinstance(indices, jax.Array) else np.asarray(indices)
    count = constant.shape[-1] if constant.ndim else 0
    if not constant.ndim or count > x.ndim:
        raise ValueError(
            f"{name}: expected indices (n, k) for the first k of {x.ndim} axes, received the shape "
            f"{constant.shape}. For an array of one axis: [[1], [3]]."
        )
    for axis in range(count):
        check_constant_indices(name, x, constant[..., axis], axis)
    return tuple(jnp.moveaxis(jnp.asarray(indices), -1, 0))


@op
def scatter_update(
    inputs: TensorLike, indices: TensorLike, updates: TensorLike, reduction: str | None = None
) -> jax.Array:
    """Returns the inputs with elements at indices replaced by, or combined with, the updates.

    Args:
        inputs: an array.
        indices: integers, (n, k): for each update, the indices of the first k axes.
        updates: (n, *rest).
        reduction: None to replace elements, or "add", "max", "min", "mul" to combine them.

    Raises:
        ValueError: if `reduction` is unknown.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.ops.scatter_update(jnp.ones(3), [[1]], jnp.array([5.0]), reduction="add")
        Array([1., 6., 1.], dtype=float32)
    """
    inputs = jnp.asarray(inputs)
    target = inputs.at[_index_tuple("scatter_update", inputs, indices)]
    updates = to_array(updates)
    # each case is one scatter primitive; with equal indices and None, the winner is undefined
    match reduction.lower() if isinstance(reduction, str) else reduction:
        case None:
            return target.set(updates)
        case "add":
            return target.add(updates)
        case "max":
            return target.max(updates)
        case "min":
            return target.min(updates)
        case "mul":
            return target.multiply(updates)
    raise ValueError(
        f"scatter_update: reduction: expected None, 'add', 'max', 'min' or 'mul', received "
        f"{reduction!r}. For the mean add up and divide by the counts."
    )
