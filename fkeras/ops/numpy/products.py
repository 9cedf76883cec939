"""Products, diagonals and triangles of matrices, differences and integrals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from fkeras.engine.call.node import TensorLike
from fkeras.engine.symbolic.define import binary, few, op, to_array
from fkeras.engine.symbolic.operation import Op
from fkeras.engine.symbolic.operators import matmul
from fkeras.engine.values.argument_types import Number
from fkeras.nn.numerics.stable import sign_and_logdet

__all__ = (
    "cross",
    "diag",
    "diagflat",
    "diagonal",
    "diff",
    "dot",
    "einsum",
    "inner",
    "kron",
    "matmul",
    "outer",
    "slogdet",
    "tensordot",
    "trace",
    "trapezoid",
    "tril",
    "triu",
    "vdot",
    "vectorize",
)

# resource limit: an exhaustive search for the best contraction order grows factorially with the
# number of arrays
_SEARCHED = 8

dot = binary(
    "dot",
    jnp.dot,
    "The product of the last axis of x1 and the last but one of x2.",
    "dot([[1, 2], [3, 4]], [10, 1])",
    "[12 34]",
    elementwise=False,
)
vdot = binary(
    "vdot",
    jnp.vdot,
    "The sum of products of conj(x1) and x2, both flat.",
    "vdot([1, 2], [3, 4])",
    "11",
    elementwise=False,
)
inner = binary(
    "inner",
    jnp.inner,
    "The product over the last axes of x1 and x2.",
    "inner([[1, 2], [3, 4]], [10, 1])",
    "[12 34]",
    elementwise=False,
)
outer = binary(
    "outer",
    jnp.outer,
    "The products of all pairs of x1 and x2, both flat.",
    "outer([1, 2], [3, 4]).tolist()",
    "[[3, 4], [6, 8]]",
    elementwise=False,
)
kron = binary(
    "kron",
    jnp.kron,
    "The Kronecker product: x2 times each element of x1.",
    "kron([1, 10], [1, 2])",
    "[ 1  2 10 20]",
    elementwise=False,
)


@op
def tensordot(
    x1: TensorLike, x2: TensorLike, axes: int | Sequence[int] | Sequence[Sequence[int]] = 2
) -> jax.Array:
    """Returns the tensor product of x1 and x2, summed over pairs of axes.

    Args:
        axes: the number of last axes of x1 to pair with the first axes of x2, or two lists of axes.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.tensordot([[1, 2], [3, 4]], [10, 1], axes=1))
        [12 34]
    """
    return jnp.tensordot(to_array(x1), to_array(x2), axes=axes)


@op
def einsum(subscripts: str, *operands: TensorLike, **kwargs: Any) -> jax.Array:
    """Evaluates an Einstein summation.

    Args:
        subscripts: the axes of each array and of the result, as in "bij,bjk->bik".
        *operands: the arrays.
        **kwargs: further arguments of jax.numpy.einsum.

    Raises:
        ValueError: if `optimize` requests an exhaustive search for too many arrays.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> print(fk.ops.einsum("ij,j->i", jnp.eye(2), jnp.array([3.0, 4.0])))
        [3. 4.]
    """
    arrays = [jnp.asarray(x) for x in operands]
    # "auto" and "greedy" stay cheap for many arrays
    search = kwargs.get("optimize", "auto")
    if len(arrays) > _SEARCHED and not (search is False or search in ("auto", "greedy")):
        raise ValueError(
            f"einsum: expected optimize='auto', 'greedy' or False for more than {_SEARCHED} "
            f"arrays, received {search!r} for {len(arrays)}. Other strategies would try too many "
            "orders."
        )
    if arrays and all(x.dtype == jnp.int8 for x in arrays):
        # products of int8 overflow int8; accumulate in int32, as Keras does
        kwargs.setdefault("preferred_element_type", "int32")
    return jnp.einsum(subscripts, *arrays, **kwargs)


@op
def cross(
    x1: TensorLike,
    x2: TensorLike,
    axisa: int = -1,
    axisb: int = -1,
    axisc: int = -1,
    axis: int | None = None,
) -> jax.Array:
    """Returns the cross product of vectors with 2 or 3 elements.

    Args:
        x1: vectors.
        x2: vectors.
        axisa: the axis of x1 that holds the vectors.
        axisb: the axis of x2 that holds the vectors.
        axisc: the axis of the result that holds the vectors.
        axis: overrides `axisa`, `axisb` and `axisc` if not None.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.cross([1, 0, 0], [0, 1, 0]))
        [0 0 1]
    """
    return jnp.cross(to_array(x1), to_array(x2), axisa, axisb, axisc, axis)


@op
def diag(x: TensorLike, k: int = 0) -> jax.Array:
    """Returns a matrix with a vector on its diagonal `k`, or the diagonal `k` of a matrix.

    Args:
        x: a vector or a matrix.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.diag([[1, 2], [3, 4]]))
        [1 4]
    """
    return jnp.diag(to_array(x), k=k)


@op
def diagflat(x: TensorLike, k: int = 0) -> jax.Array:
    """Returns a matrix with the flattened elements of x on its diagonal `k`.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.diagflat([1, 2]).tolist()
        [[1, 0], [0, 2]]
    """
    return jnp.diagflat(to_array(x), k=k)


@op
def diagonal(x: TensorLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> jax.Array:
    """Returns the diagonals of the matrices on two axes of x.

    Args:
        x: array of at least two axes.
        offset: index of the diagonal: 0 for the main diagonal, positive above.
        axis1: the axis of rows.
        axis2: the axis of columns.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.diagonal([[1, 2], [3, 4]]))
        [1 4]
    """
    return jnp.diagonal(to_array(x), offset=offset, axis1=axis1, axis2=axis2)


@op
def trace(x: TensorLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> jax.Array:
    """Returns the sums of the diagonals of the matrices on two axes of x.

    Args:
        x: array of at least two axes.
        offset: index of the diagonal: 0 for the main diagonal, positive above.
        axis1: the axis of rows.
        axis2: the axis of columns.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.trace([[1, 2], [3, 4]]))
        5
    """
    return jnp.trace(to_array(x), offset=offset, axis1=axis1, axis2=axis2)


@op
def tril(x: TensorLike, k: int = 0) -> jax.Array:
    """Returns x with zeros above the diagonal `k` of its last two axes.

    Args:
        x: matrices, (..., n, m).

    Example:
        >>> import fkeras as fk
        >>> fk.ops.tril([[1, 2], [3, 4]]).tolist()
        [[1, 0], [3, 4]]
    """
    return jnp.tril(to_array(x), k=k)


@op
def triu(x: TensorLike, k: int = 0) -> jax.Array:
    """Returns x with zeros below the diagonal `k` of its last two axes.

    Args:
        x: matrices, (..., n, m).

    Example:
        >>> import fkeras as fk
        >>> fk.ops.triu([[1, 2], [3, 4]]).tolist()
        [[1, 2], [0, 4]]
    """
    return jnp.triu(to_array(x), k=k)


@op
def diff(a: TensorLike, n: int = 1, axis: int = -1) -> jax.Array:
    """Returns the n-th differences of neighbouring elements along an axis.

    Args:
        a: array of any shape.
        n: number of times to take differences.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.diff([1, 4, 9]))
        [3 5]
    """
    # one subtraction per difference in the compiled program
    return jnp.diff(to_array(a), n=few(n), axis=axis)


@op
def trapezoid(
    y: TensorLike, x: TensorLike | None = None, dx: Number = 1.0, axis: int = -1
) -> jax.Array:
    """Integrates y along an axis with the trapezoidal rule.

    Args:
        y: the values, an array.
        x: the sample points; None for equal distances.
        dx: distance of the sample points if x is None.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.trapezoid([1, 2, 3]))
        4.0
    """
    return jnp.trapezoid(to_array(y), None if x is None else to_array(x), dx=dx, axis=axis)


@op
def slogdet(x: TensorLike) -> tuple[jax.Array, jax.Array]:
    """Returns the sign of the determinant and the logarithm of its absolute value.

    Args:
        x: square matrices, (..., n, n).

    Example:
        >>> import fkeras as fk
        >>> sign, log = fk.ops.slogdet([[0.0, 2.0], [2.0, 0.0]])
        >>> print(sign, log.round(3))
        -1.0 1.386
    """
    return sign_and_logdet(to_array(x))


def vectorize(
    pyfunc: Callable[..., Any],
    *,
    excluded: Iterable[int | str] | None = None,
    signature: str | None = None,
) -> Op[...]:
    """Converts a function of scalars into an operation on arrays, which broadcast.

    Args:
        pyfunc: a function of scalars, or of arrays with the axes of `signature`.
        excluded: positions and names of arguments that are not vectorized.
        signature: the core axes of the function, as in "(n),(n)->()".

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.ops.vectorize(lambda a, b: a * b + 1)(jnp.arange(3), 2)
        Array([1, 3, 5], dtype=int32)
    """
    function = jnp.vectorize(pyfunc, excluded=frozenset(excluded or ()), signature=signature)
    # not builtin: files cannot refer to a user's function by a name in `fkeras.ops`
    return Op(getattr(pyfunc, "__name__", "vectorized"), function, builtin=False)
