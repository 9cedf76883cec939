"""Array creation: constants, ranges and matrices; `ndim` and `size`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine.call.node import SymbolicTensor, TensorLike, is_symbolic
from fkeras.engine.symbolic.define import elementwise, op, to_array
from fkeras.engine.symbolic.operation import BEHIND_FUNCTIONS
from fkeras.engine.symbolic.operators import KerasTensor
from fkeras.engine.values.argument_types import DTypeLike, Number, Shape
from fkeras.nn.numerics.slopes import power

__all__ = (
    "arange",
    "array",
    "empty",
    "empty_like",
    "eye",
    "full",
    "full_like",
    "geomspace",
    "identity",
    "linspace",
    "logspace",
    "ndim",
    "ones",
    "ones_like",
    "size",
    "tri",
    "vander",
    "zeros",
    "zeros_like",
)


@elementwise
def array(x: TensorLike, dtype: DTypeLike | None = None) -> jax.Array:
    """Returns x as an array.

    Args:
        x: a number, nested lists or an array.
        dtype: the dtype; None for the dtype of x.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.array([1, 2], "float32"))
        [1. 2.]
    """
    # `jnp.array` copies, as in NumPy; `convert_to_tensor` does not
    return jnp.array(x, dtype=dtype)


@op
def zeros(shape: Shape, dtype: DTypeLike | None = None) -> jax.Array:
    """Returns an array of zeros, float32 by default.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.zeros(3))
        [0. 0. 0.]
    """
    # Keras's default dtype is float32 for these functions, also if x64 is enabled
    return jnp.zeros(shape, dtype or "float32")


@op
def ones(shape: Shape, dtype: DTypeLike | None = None) -> jax.Array:
    """Returns an array of ones, float32 by default.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.ones(3))
        [1. 1. 1.]
    """
    return jnp.ones(shape, dtype or "float32")


@op
def empty(shape: Shape, dtype: DTypeLike | None = None) -> jax.Array:
    """Returns an array with arbitrary values (zeros in JAX), float32 by default.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.empty(3))
        [0. 0. 0.]
    """
    return jnp.zeros(shape, dtype or "float32")


@op
def full(shape: Shape, fill_value: TensorLike, dtype: DTypeLike | None = None) -> jax.Array:
    """Returns an array filled with a value, float32 by default.

    Args:
        fill_value: the value.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.full(3, 7))
        [7. 7. 7.]
    """
    # float32 also for an integer `fill_value`, as in Keras
    return jnp.full(shape, to_array(fill_value), dtype or "float32")


@elementwise
def zeros_like(x: TensorLike, dtype: DTypeLike | None = None) -> jax.Array:
    """Returns zeros with the shape of x.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.zeros_like([1, 2]))
        [0 0]
    """
    return jnp.zeros_like(to_array(x), dtype=dtype)


@elementwise
def ones_like(x: TensorLike, dtype: DTypeLike | None = None) -> jax.Array:
    """Returns ones with the shape of x.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.ones_like([1, 2]))
        [1 1]
    """
    return jnp.ones_like(to_array(x), dtype=dtype)


@elementwise
def empty_like(x: TensorLike, dtype: DTypeLike | None = None) -> jax.Array:
    """Returns an array with arbitrary values (zeros in JAX) and the shape of x.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.empty_like([1, 2]))
        [0 0]
    """
    return jnp.zeros_like(to_array(x), dtype=dtype)


@elementwise
def full_like(x: TensorLike, fill_value: TensorLike, dtype: DTypeLike | None = None) -> jax.Array:
    """Returns an array filled with a value, with the shape of x.

    Args:
        fill_value: the value.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.full_like([1, 2], 7))
        [7 7]
    """
    return jnp.full_like(to_array(x), to_array(fill_value), dtype=dtype)


@op
def arange(
    start: Number,
    stop: Number | None = None,
    step: Number | None = None,
    dtype: DTypeLike | None = None,
) -> jax.Array:
    """Returns evenly spaced numbers from start (inclusive) to stop (exclusive).

    Args:
        start: the first number; the end of the range, from 0, if `stop` is None.
        stop: the end of the range.
        step: the distance; None for 1.
        dtype: the dtype; None for the common dtype of the arguments.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.arange(1, 7, 2))
        [1 3 5]
    """
    return jnp.arange(start, stop, step=step, dtype=dtype)


@op
def linspace(
    start: TensorLike,
    stop: TensorLike,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: DTypeLike | None = None,
    axis: int = 0,
) -> jax.Array | tuple[jax.Array, jax.Array]:
    """Returns `num` evenly spaced numbers from start to stop.

    Args:
        start: the first number, or an array.
        stop: the last number, or an array.
        num: number of elements.
        endpoint: whether to include `stop`.
        retstep: whether to return `(numbers, distance)`.
        dtype: the dtype; None for a float dtype.
        axis: position of the new axis, if `start` or `stop` is an array.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.linspace(0, 1, 5))
        [0.   0.25 0.5  0.75 1.  ]
    """
    start, stop = to_array(start), to_array(stop)
    return jnp.linspace(start, stop, num, endpoint, retstep=retstep, dtype=dtype, axis=axis)


@op
def logspace(
    start: TensorLike,
    stop: TensorLike,
    num: int = 50,
    endpoint: bool = True,
    base: Number = 10,
    dtype: DTypeLike | None = None,
    axis: int = 0,
) -> jax.Array:
    """Returns base**y for `num` evenly spaced exponents y from start to stop.

    Args:
        start: the first exponent, or an array.
        stop: the last exponent, or an array.
        num: number of elements.
        endpoint: whether to include `stop`.
        base: the base.
        dtype: the dtype; None for a float dtype.
        axis: position of the new axis, if `start` or `stop` is an array.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.logspace(0, 3, 4, base=2).round(3))
        [1. 2. 4. 8.]
    """
    start, stop = to_array(start), to_array(stop)
    return jnp.logspace(start, stop, num, endpoint, base=base, dtype=dtype, axis=axis)


@op
def geomspace(
    start: TensorLike,
    stop: TensorLike,
    num: int = 50,
    endpoint: bool = True,
    dtype: DTypeLike | None = None,
    axis: int = 0,
) -> jax.Array:
    """Returns `num` numbers from start to stop in geometric progression.

    Args:
        start: the first number, or an array; not 0.
        stop: the last number, or an array; not 0.
        num: number of elements.
        endpoint: whether to include `stop`.
        dtype: the dtype; None for a float dtype.
        axis: position of the new axis, if `start` or `stop` is an array.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.geomspace(1, 8, 4).round(3))
        [1. 2. 4. 8.]
    """
    start, stop = to_array(start), to_array(stop)
    return jnp.geomspace(start, stop, num, endpoint, dtype=dtype, axis=axis)


@op
def eye(N: int, M: int | None = None, k: int = 0, dtype: DTypeLike | None = None) -> jax.Array:
    """Returns an N by M matrix with ones on the diagonal `k` and zeros elsewhere.

    Args:
        N: number of rows.
        M: number of columns; None for N.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.eye(2).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    return jnp.eye(N, M=M, k=k, dtype=dtype or "float32")


@op
def identity(n: int, dtype: DTypeLike | None = None) -> jax.Array:
    """Returns the n by n identity matrix.

    Args:
        n: number of rows and columns.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.identity(2).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    return jnp.identity(n, dtype=dtype or "float32")


@op
def tri(N: int, M: int | None = None, k: int = 0, dtype: DTypeLike | None = None) -> jax.Array:
    """Returns an N by M matrix with ones on and below the diagonal `k`, and zeros above.

    Args:
        N: number of rows.
        M: number of columns; None for N.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.tri(2).tolist()
        [[1.0, 0.0], [1.0, 1.0]]
    """
    return jnp.tri(N, M=M, k=k, dtype=dtype or "float32")


@op
def vander(x: TensorLike, N: int | None = None, increasing: bool = False) -> jax.Array:
    """Returns the Vandermonde matrix: row i holds the powers of x[i], in descending order.

    Args:
        x: a vector.
        N: number of columns; None for the size of x.
        increasing: whether the powers are in ascending order.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.vander([1, 2, 3]).tolist()
        [[1, 1, 1], [4, 2, 1], [9, 3, 1]]
    """
    x = jnp.asarray(to_array(x))
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return jnp.vander(x, N=N, increasing=increasing)
    # let JAX derive the number of columns from N, without computing anything
    columns = jax.eval_shape(lambda v: jnp.vander(v, N=N, increasing=increasing), x).shape[1]
    exponents = np.arange(columns, dtype=x.dtype)
    # the gradient of `jnp.vander` at 0 is NaN; `power` has a finite gradient
    return power(x[:, None], (exponents if increasing else exponents[::-1])[None])


def ndim(x: TensorLike) -> int:
    """Returns the number of axes of x.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.ndim(fk.Input((3,)))
        2
    """
    # the rank of a symbolic tensor is static: an integer, not a node
    return x.ndim if isinstance(x, SymbolicTensor) else jnp.ndim(to_array(x))


def size(x: TensorLike) -> int | KerasTensor:
    """Returns the number of elements of x; a symbolic scalar for a symbolic tensor.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.size([[1, 2], [3, 4]]), fk.ops.size(fk.Input((3,))).shape
        (4, ())
    """
    if not is_symbolic(x):
        return jnp.size(to_array(x))
    # the batch size is unknown until the model runs, so record a node
    count: Any = BEHIND_FUNCTIONS["size"](x)
    return count
