"""Arrays out of numbers: filled, evenly spaced, on diagonals; and how many axes and elements they have."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine.call.node import is_symbolic
from fkeras.engine.symbolic.define import elementwise, op, to_array
from fkeras.engine.symbolic.operation import BEHIND_FUNCTIONS
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
def array(x: Any, dtype: Any = None) -> Any:
    """x as an array of the dtype.

    Args:
        x: a number, nested lists or an array.
        dtype: its dtype; the one of x where it is None.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.array([1, 2], "float32"))
        [1. 2.]
    """
    return jnp.array(x, dtype=dtype)


@op
def zeros(shape: Any, dtype: Any = None) -> Any:
    """An array of zeros, in float32 where no dtype is given.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.zeros(3))
        [0. 0. 0.]
    """
    return jnp.zeros(shape, dtype or "float32")


@op
def ones(shape: Any, dtype: Any = None) -> Any:
    """An array of ones, in float32 where no dtype is given.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.ones(3))
        [1. 1. 1.]
    """
    return jnp.ones(shape, dtype or "float32")


@op
def empty(shape: Any, dtype: Any = None) -> Any:
    """An array whose numbers do not matter: zeros, in float32 where no dtype is given.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.empty(3))
        [0. 0. 0.]
    """
    return jnp.zeros(shape, dtype or "float32")


@op
def full(shape: Any, fill_value: Any, dtype: Any = None) -> Any:
    """An array of one number, in float32 where no dtype is given.

    Args:
        fill_value: the number.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.full(3, 7))
        [7. 7. 7.]
    """
    return jnp.full(shape, fill_value, dtype or "float32")


@elementwise
def zeros_like(x: Any, dtype: Any = None) -> Any:
    """Zeros in the shape of x.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.zeros_like([1, 2]))
        [0 0]
    """
    return jnp.zeros_like(to_array(x), dtype=dtype)


@elementwise
def ones_like(x: Any, dtype: Any = None) -> Any:
    """Ones in the shape of x.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.ones_like([1, 2]))
        [1 1]
    """
    return jnp.ones_like(to_array(x), dtype=dtype)


@elementwise
def empty_like(x: Any, dtype: Any = None) -> Any:
    """Numbers that do not matter, zeros, in the shape of x.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.empty_like([1, 2]))
        [0 0]
    """
    return jnp.zeros_like(to_array(x), dtype=dtype)


@elementwise
def full_like(x: Any, fill_value: Any, dtype: Any = None) -> Any:
    """One number in the shape of x.

    Args:
        fill_value: the number.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.full_like([1, 2], 7))
        [7 7]
    """
    return jnp.full_like(to_array(x), fill_value, dtype=dtype)


@op
def arange(start: Any, stop: Any = None, step: Any = None, dtype: Any = None) -> Any:
    """The numbers from start, or 0, up to stop, which is left out.

    Args:
        start: the first number; the end where no stop is given.
        stop: the end.
        step: the distance; 1 where it is None.
        dtype: its dtype; that of the numbers where it is None.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.arange(1, 7, 2))
        [1 3 5]
    """
    return jnp.arange(start, stop, step=step, dtype=dtype)


@op
def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    """`num` numbers at equal distances from start to stop; with `retstep` the distance too.

    Args:
        start: the first number, or an array.
        stop: the last number, or an array.
        num: how many.
        endpoint: whether stop is among them.
        retstep: whether to return `(numbers, distance)`.
        dtype: their dtype; a float where it is None.
        axis: where the new axis stands, for arrays.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.linspace(0, 1, 5))
        [0.   0.25 0.5  0.75 1.  ]
    """
    start, stop = to_array(start), to_array(stop)
    return jnp.linspace(start, stop, num, endpoint, retstep=retstep, dtype=dtype, axis=axis)


@op
def logspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    base: Any = 10,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    """base ** y for `num` numbers y at equal distances from start to stop.

    Args:
        start: the first exponent, or an array.
        stop: the last exponent, or an array.
        num: how many.
        endpoint: whether stop is among them.
        base: the base.
        dtype: their dtype; a float where it is None.
        axis: where the new axis stands, for arrays.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.logspace(0, 3, 4, base=2).round(3))
        [1. 2. 4. 8.]
    """
    start, stop = to_array(start), to_array(stop)
    return jnp.logspace(start, stop, num, endpoint, base=base, dtype=dtype, axis=axis)


@op
def geomspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0
) -> Any:
    """`num` numbers from start to stop, each the same multiple of the one before.

    Args:
        start: the first number, or an array; not 0.
        stop: the last number, or an array; not 0.
        num: how many.
        endpoint: whether stop is among them.
        dtype: their dtype; a float where it is None.
        axis: where the new axis stands, for arrays.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.geomspace(1, 8, 4).round(3))
        [1. 2. 4. 8.]
    """
    start, stop = to_array(start), to_array(stop)
    return jnp.geomspace(start, stop, num, endpoint, dtype=dtype, axis=axis)


@op
def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Any:
    """N rows and M columns of zeros with ones on the diagonal `k`.

    Args:
        N: how many rows.
        M: how many columns; N where it is None.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.eye(2).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    return jnp.eye(N, M=M, k=k, dtype=dtype or "float32")


@op
def identity(n: int, dtype: Any = None) -> Any:
    """The n by n matrix with ones on the diagonal and zeros elsewhere.

    Args:
        n: how many rows and columns.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.identity(2).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    return jnp.identity(n, dtype=dtype or "float32")


@op
def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Any:
    """N rows and M columns of ones on the diagonal `k` and below it, zeros above.

    Args:
        N: how many rows.
        M: how many columns; N where it is None.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.tri(2).tolist()
        [[1.0, 0.0], [1.0, 1.0]]
    """
    return jnp.tri(N, M=M, k=k, dtype=dtype or "float32")


@op
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    """The powers of each element of a vector as a row, from the highest to x**0.

    Args:
        x: a vector.
        N: how many columns; the size of x where it is None.
        increasing: whether the powers rise.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.vander([1, 2, 3]).tolist()
        [[1, 1, 1], [4, 2, 1], [9, 3, 1]]
    """
    x = jnp.asarray(to_array(x))
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return jnp.vander(x, N=N, increasing=increasing)
    columns = jax.eval_shape(lambda v: jnp.vander(v, N=N, increasing=increasing), x).shape[1]
    exponents = np.arange(columns, dtype=x.dtype)
    # jnp.vander has NaN as its gradient at 0
    return power(x[:, None], (exponents if increasing else exponents[::-1])[None])


def ndim(x: Any) -> int:
    """How many axes x has.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.ndim(fk.Input((3,)))
        2
    """
    return len(x.shape) if is_symbolic(x) else jnp.ndim(to_array(x))


def size(x: Any) -> Any:
    """How many elements x has; a symbolic scalar where an axis has no known size.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.size([[1, 2], [3, 4]]), fk.ops.size(fk.Input((3,))).shape
        (4, ())
    """
    if not is_symbolic(x):
        return jnp.size(to_array(x))
    return BEHIND_FUNCTIONS["size"](x)
