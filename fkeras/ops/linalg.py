"""Linear algebra, with the names of `keras.ops.linalg`.

Gradients of `eig`, `eigh`, `qr`, `lu_factor`, `svd`, `lstsq` and `pinv` exist if the matrix has
full rank and distinct singular values or eigenvalues. Otherwise the factors are not differentiable,
and the gradient is NaN.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.core import Tracer

from fkeras.engine.call.node import TensorLike
from fkeras.engine.symbolic.define import op, to_array, to_floats
from fkeras.engine.values.argument_types import Axes, Number
from fkeras.nn.numerics.stable import safe_sqrt, vector_norm
from fkeras.ops.control import jvp
from fkeras.ops.numpy.reductions import axes_of

__all__ = (
    "cholesky",
    "cholesky_inverse",
    "det",
    "eig",
    "eigh",
    "inv",
    "jvp",
    "lstsq",
    "lu_factor",
    "matrix_rank",
    "norm",
    "pinv",
    "qr",
    "solve",
    "solve_triangular",
    "svd",
)


def _square(name: str, x: TensorLike) -> jax.Array:
    x = jnp.asarray(x)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(
            f"{name}: expected square matrices on the last two axes, received an array of shape "
            f"{x.shape}. For other matrices see fk.ops.lstsq, pinv and svd."
        )
    return x


@op
def cholesky(x: TensorLike, upper: bool = False) -> jax.Array:
    """Returns the Cholesky factor of positive definite matrices: L with L @ L.T = x, or L.T.

    Args:
        upper: whether to return the upper factor L.T.

    Raises:
        ValueError: if the matrices are not square, or not positive definite. Under jit, the result
            for matrices that are not positive definite is NaN.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.cholesky([[4.0, 2.0], [2.0, 5.0]])
        Array([[2., 0.],
               [1., 2.]], dtype=float32)
    """
    y = jnp.linalg.cholesky(_square("cholesky", x), upper=upper)
    # a traced factor has no values to check: compiled functions return NaN, as in JAX
    if not isinstance(y, Tracer) and bool(jnp.isnan(y).any()):
        raise ValueError(
            "cholesky: expected positive definite matrices, received others. Add a small number to "
            "the diagonal: x + 1e-6 * fk.ops.eye(n)."
        )
    return y


@op
def cholesky_inverse(x: TensorLike, upper: bool = False) -> jax.Array:
    """Returns the inverse of the matrix whose Cholesky factor is x.

    Args:
        x: triangular matrices (..., n, n), as `cholesky` returns them.
        upper: whether x holds upper factors.

    Raises:
        ValueError: if the matrices are not square.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.cholesky_inverse([[2.0, 0.0], [0.0, 1.0]])
        Array([[0.25, 0.  ],
               [0.  , 1.  ]], dtype=float32)
    """
    x = _square("cholesky_inverse", x)
    # solve against the identity, then multiply by the transpose: inv(L.T) @ inv(L)
    half = _triangular(x, jnp.broadcast_to(jnp.eye(x.shape[-1], dtype=x.dtype), x.shape), not upper)
    transposed = jnp.swapaxes(half, -1, -2)
    return half @ transposed if upper else transposed @ half


def _triangular(a: jax.Array, b: jax.Array, lower: bool) -> jax.Array:
    if b.ndim == a.ndim - 1:
        return _triangular(a, b[..., None], lower)[..., 0]
    # `triangular_solve` does not broadcast batch axes
    batch = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a = jnp.broadcast_to(a, (*batch, *a.shape[-2:]))
    b = jnp.broadcast_to(b, (*batch, *b.shape[-2:]))
    return jax.lax.linalg.triangular_solve(a, b, left_side=True, lower=lower)


@op
def det(x: TensorLike) -> jax.Array:
    """Returns the determinants of square matrices.

    Raises:
        ValueError: if the matrices are not square.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.det([[1.0, 2.0], [3.0, 4.0]]).round(3)
        Array(-2., dtype=float32)
    """
    return jnp.linalg.det(_square("det", x))


@op
def inv(x: TensorLike) -> jax.Array:
    """Returns the inverses of square matrices.

    Args:
        x: matrices (..., n, n); the result for a singular matrix is not finite.

    Raises:
        ValueError: if the matrices are not square.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.inv([[2.0, 0.0], [0.0, 4.0]]).tolist()
        [[0.5, 0.0], [0.0, 0.25]]
    """
    return jnp.linalg.inv(_square("inv", x))


@op
def eig(x: TensorLike) -> tuple[jax.Array, jax.Array]:
    """Returns complex `(eigenvalues, eigenvectors)` of square matrices; supported only on CPUs.

    Raises:
        ValueError: if the matrices are not square.

    Example:
        >>> import fkeras as fk
        >>> values, vectors = fk.ops.eig([[2.0, 0.0], [0.0, 3.0]])
        >>> sorted(values.real.tolist())
        [2.0, 3.0]
    """
    values, vectors = jnp.linalg.eig(_square("eig", x))
    return values, vectors


@op
def eigh(x: TensorLike) -> tuple[jax.Array, jax.Array]:
    """Returns `(eigenvalues, eigenvectors)` of symmetric matrices, eigenvalues in ascending order.

    Args:
        x: symmetric or Hermitian matrices (..., n, n).

    Raises:
        ValueError: if the matrices are not square.

    Example:
        >>> import fkeras as fk
        >>> values, vectors = fk.ops.eigh([[2.0, 1.0], [1.0, 2.0]])
        >>> [round(x, 3) for x in values.tolist()]
        [1.0, 3.0]
    """
    values, vectors = jnp.linalg.eigh(_square("eigh", x))
    return values, vectors


@op
def lu_factor(x: TensorLike) -> tuple[jax.Array, jax.Array]:
    """Returns `(lu, pivots)`: L below the diagonal, U on and above it, and the row exchanges.

    Example:
        >>> import fkeras as fk
        >>> factors, pivots = fk.ops.lu_factor([[1.0, 2.0], [2.0, 2.0]])
        >>> factors.tolist(), pivots.tolist()
        ([[2.0, 2.0], [0.5, 1.0]], [1, 1])
    """
    # the third result is the permutation, which the pivots already determine
    factors, pivots, _ = jax.lax.linalg.lu(to_array(x))
    return factors, pivots


@op
def norm(
    x: TensorLike, ord: int | float | str | None = None, axis: Axes = None, keepdims: bool = False
) -> jax.Array:
    """Returns the norm of vectors (one axis) or matrices (two axes).

    The gradient of a Euclidean norm is 0 where the norm is 0.

    Args:
        ord: None for the root of the sum of squares; for vectors a number or infinity, for
            matrices "fro", "nuc", 1, 2, -1, -2 or infinity.
        axis: one axis of vectors, or two axes of matrices; None for all axes.

    Raises:
        ValueError: for an order that vectors, or matrices, do not have.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.norm([[3.0, 4.0]], axis=-1)
        Array([5.], dtype=float32)
    """
    x, axis = to_floats(x), axes_of(axis)
    vectors = isinstance(axis, int) or (axis is None and x.ndim == 1)
    matrices = x.ndim == 2 if axis is None else not isinstance(axis, int) and len(axis) == 2
    if ord is None or (ord == 2 and vectors) or (ord == "fro" and matrices):
        return safe_sqrt(jnp.sum(jnp.square(jnp.abs(x)), axis=axis, keepdims=keepdims))
    if not vectors or not isinstance(ord, int | float):
        return jnp.linalg.norm(x, ord=ord, axis=axis, keepdims=keepdims)
    # `vector_norm` scales by the largest element, so that powers neither overflow nor underflow
    if 1 < ord < float("inf"):
        return vector_norm(x, ord, axis, keepdims)
    # the derivative of a norm at 0 may be NaN: compute the norm of ones there, select afterwards
    is_zero = jnp.all(x == 0, axis=axis, keepdims=True)
    y = jnp.linalg.norm(jnp.where(is_zero, 1, x), ord=ord, axis=axis, keepdims=keepdims)
    norm_of_zeros = jnp.linalg.norm(jnp.zeros_like(x), ord=ord, axis=axis, keepdims=keepdims)
    is_zero = is_zero if keepdims else jnp.squeeze(is_zero, axis)
    return jnp.where(is_zero, jax.lax.stop_gradient(norm_of_zeros), y)


@op
def qr(x: TensorLike, mode: str = "reduced") -> tuple[jax.Array, jax.Array]:
    """Returns `(q, r)` with q @ r = x, q orthogonal and r upper triangular.

    Args:
        mode: "reduced" for min(n, m) columns of q, or "complete" for square q.

    Raises:
        ValueError: if `mode` is unknown.

    Example:
        >>> import fkeras as fk
        >>> q, r = fk.ops.qr([[3.0, 1.0], [4.0, 2.0]])
        >>> abs(r).round(3)
        Array([[5. , 2.2],
               [0. , 0.4]], dtype=float32)
    """
    if mode not in ("reduced", "complete"):
        raise ValueError(
            f"qr: mode: expected 'reduced' or 'complete', received {mode!r}. For r alone take "
            "fk.ops.qr(x)[1]."
        )
    q, r = jnp.linalg.qr(to_array(x), mode=mode)
    return q, r


@op
def solve(a: TensorLike, b: TensorLike) -> jax.Array:
    """Solves a @ x = b for square matrices a; b is a vector or a matrix.

    Args:
        a: matrices (..., n, n).
        b: (n,), or (..., n, m).

    Raises:
        ValueError: if the matrices a are not square.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.solve([[2.0, 0.0], [0.0, 4.0]], [2.0, 2.0])
        Array([1. , 0.5], dtype=float32)
    """
    return jnp.linalg.solve(_square("solve", a), to_array(b))


@op
def solve_triangular(a: TensorLike, b: TensorLike, lower: bool = False) -> jax.Array:
    """Solves a @ x = b for triangular matrices a, ignoring the other triangle.

    Args:
        a: matrices (..., n, n).
        b: (..., n), or (..., n, m).
        lower: whether a is lower triangular.

    Raises:
        ValueError: if the matrices a are not square.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.solve_triangular([[2.0, 0.0], [1.0, 4.0]], [2.0, 5.0], lower=True)
        Array([1., 1.], dtype=float32)
    """
    return _triangular(_square("solve_triangular", a), jnp.asarray(b), lower)


@op
def svd(
    x: TensorLike, full_matrices: bool = True, compute_uv: bool = True
) -> jax.Array | tuple[jax.Array, ...]:
    """Returns the singular value decomposition `(u, s, vh)` with u @ diag(s) @ vh = x.

    Args:
        full_matrices: whether u and vh are square.
        compute_uv: whether to return u and vh; False returns only s.

    Example:
        >>> import fkeras as fk
        >>> s = fk.ops.svd([[3.0, 0.0], [0.0, -4.0]], compute_uv=False)
        >>> [round(x, 3) for x in s.tolist()]
        [4.0, 3.0]
    """
    # return a plain tuple, as in Keras, instead of JAX's named tuple
    result = jnp.linalg.svd(to_array(x), full_matrices=full_matrices, compute_uv=compute_uv)
    return tuple(result) if compute_uv else result


@op
def lstsq(a: TensorLike, b: TensorLike, rcond: float | None = None) -> jax.Array:
    """Returns the least-squares solution of a @ x = b with the smallest norm.

    Args:
        a: a matrix (n, m).
        b: (n,) or (n, k).
        rcond: singular values below `rcond` times the largest count as 0.

    Returns:
        An array of shape (m,) or (m, k).

    Example:
        >>> import fkeras as fk
        >>> round(float(fk.ops.lstsq([[1.0], [1.0]], [2.0, 4.0])[0]), 3)
        3.0
    """
    # Keras returns the solution only, without residuals, rank and singular values
    return jnp.linalg.lstsq(to_array(a), to_array(b), rcond=rcond)[0]


def _matrices(name: str, x: TensorLike) -> jax.Array:
    x = jnp.asarray(x)
    if x.ndim < 2:
        raise ValueError(
            f"{name}: expected matrices on the last two axes, received an array of shape "
            f"{x.shape}. Give a vector a second axis: x[:, None]."
        )
    return x


@op
def matrix_rank(x: TensorLike, tol: Number | None = None) -> jax.Array:
    """Returns the number of singular values above the tolerance.

    Args:
        tol: tolerance relative to the largest singular value; None for the rounding error.

    Raises:
        ValueError: if x has less than two axes.

    Example:
        >>> import fkeras as fk
        >>> int(fk.ops.matrix_rank([[1.0, 2.0], [2.0, 4.0]]))
        1
    """
    # relative tolerance: Keras's argument is called `tol`, jax.numpy's `rtol`
    return jnp.linalg.matrix_rank(_matrices("matrix_rank", x), rtol=tol).astype("int32")


@op
def pinv(x: TensorLike, rcond: Number | None = None) -> jax.Array:
    """Returns the Moore-Penrose pseudo-inverse of matrices.

    Args:
        rcond: singular values below `rcond` times the largest count as 0; None for the rounding
            error.

    Returns:
        An array of shape (..., m, n).

    Raises:
        ValueError: if x has less than two axes.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.pinv([[1.0], [1.0]]).round(3)
        Array([[0.5, 0.5]], dtype=float32)
    """
    return jnp.linalg.pinv(_matrices("pinv", x), rtol=rcond)
