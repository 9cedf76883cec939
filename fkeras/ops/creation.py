"""Arrays out of numbers: filled, evenly spaced, windows; and dtypes and shapes of arrays."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from fkeras.engine.node import is_symbolic
from fkeras.engine.operation import Op
from fkeras.ops._define import elementwise, op, to_array

__all__ = (
    "arange",
    "array",
    "bartlett",
    "blackman",
    "empty",
    "empty_like",
    "eye",
    "full",
    "full_like",
    "geomspace",
    "hamming",
    "hanning",
    "identity",
    "kaiser",
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
    """x as an array of the dtype."""
    return jnp.array(x, dtype=dtype)


@op
def zeros(shape: Any, dtype: Any = None) -> Any:
    """An array of zeros, in float32 where no dtype is given."""
    return jnp.zeros(shape, dtype or "float32")


@op
def ones(shape: Any, dtype: Any = None) -> Any:
    """An array of ones, in float32 where no dtype is given."""
    return jnp.ones(shape, dtype or "float32")


@op
def empty(shape: Any, dtype: Any = None) -> Any:
    """An array whose numbers do not matter: zeros, in float32 where no dtype is given."""
    return jnp.zeros(shape, dtype or "float32")


@op
def full(shape: Any, fill_value: Any, dtype: Any = None) -> Any:
    """An array of one number, in float32 where no dtype is given."""
    return jnp.full(shape, fill_value, dtype or "float32")


@elementwise
def zeros_like(x: Any, dtype: Any = None) -> Any:
    """Zeros in the shape of x."""
    return jnp.zeros_like(to_array(x), dtype=dtype)


@elementwise
def ones_like(x: Any, dtype: Any = None) -> Any:
    """Ones in the shape of x."""
    return jnp.ones_like(to_array(x), dtype=dtype)


@elementwise
def empty_like(x: Any, dtype: Any = None) -> Any:
    """Numbers that do not matter, zeros, in the shape of x."""
    return jnp.zeros_like(to_array(x), dtype=dtype)


@elementwise
def full_like(x: Any, fill_value: Any, dtype: Any = None) -> Any:
    """One number in the shape of x."""
    return jnp.full_like(to_array(x), fill_value, dtype=dtype)


@op
def arange(start: Any, stop: Any = None, step: Any = None, dtype: Any = None) -> Any:
    """The numbers from start, or 0, up to stop, which is left out."""
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
    """`num` numbers at equal distances from start to stop; with `retstep` the distance too."""
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
    """base ** y for `num` numbers y at equal distances from start to stop."""
    start, stop = to_array(start), to_array(stop)
    return jnp.logspace(start, stop, num, endpoint, base=base, dtype=dtype, axis=axis)


@op
def geomspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0
) -> Any:
    """`num` numbers from start to stop, each the same multiple of the one before."""
    start, stop = to_array(start), to_array(stop)
    return jnp.geomspace(start, stop, num, endpoint, dtype=dtype, axis=axis)


@op
def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Any:
    """N rows and M columns of zeros with ones on the diagonal `k`."""
    return jnp.eye(N, M=M, k=k, dtype=dtype or "float32")


@op
def identity(n: int, dtype: Any = None) -> Any:
    """The n by n matrix with ones on the diagonal and zeros elsewhere."""
    return jnp.identity(n, dtype=dtype or "float32")


@op
def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Any:
    """N rows and M columns of ones on the diagonal `k` and below it, zeros above."""
    return jnp.tri(N, M=M, k=k, dtype=dtype or "float32")


@op
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    """The powers of each element of a vector as a row, from the highest to x**0."""
    return jnp.vander(to_array(x), N=N, increasing=increasing)


def _window(name: str, function: Any, doc: str) -> Op:
    def window(x: int) -> Any:
        return function(x).astype("float32")

    window.__doc__ = doc
    return Op(name, window)


bartlett = _window("bartlett", jnp.bartlett, "A window of x numbers: up and down in two lines.")
blackman = _window("blackman", jnp.blackman, "A window of x numbers: a sum of three cosines.")
hamming = _window("hamming", jnp.hamming, "A window of x numbers: 0.54 - 0.46 cos(t).")
hanning = _window("hanning", jnp.hanning, "A window of x numbers: 0.5 - 0.5 cos(t).")


@op
def kaiser(x: int, beta: float) -> Any:
    """A window of x numbers by a Bessel function; a larger `beta` makes it narrower."""
    return jnp.kaiser(x, beta).astype("float32")


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
    return _count(x)


def _count_elements(x: Any) -> Any:
    """The number of elements as an array, known once the array is."""
    return jnp.asarray(x.size, "int32")


_count = Op("size", _count_elements)
