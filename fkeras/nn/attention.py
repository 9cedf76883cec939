"""Dot-product attention on arrays: means of values, weighted by a softmax of query times key."""

from __future__ import annotations

import functools
import math
import string
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fkeras.nn.attention_blocks import Take, whole
from fkeras.nn.cpu.forms import compute
from fkeras.nn.cpu.products import varied
from fkeras.nn.cpu.queries import QueryScores
from fkeras.nn.numerics.dtypes import wide_dtype
from fkeras.nn.numerics.slopes import divide
from fkeras.nn.softmax import exponentials
from fkeras.nn.weighted_means import rows_of, weighted_mean

#: a mask as a function of `take`, which selects queries: (b or 1, heads or 1, n or 1, s or 1), or None
MaskOf = Callable[[Take], jax.Array | None]

# queries for each key from which the scores are the largest arrays
_MANY = 64


def attend(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    mask: jax.Array | None = None,
    bias: jax.Array | None = None,
    scale: float = 1.0,
    axes: Sequence[int] = (1,),
    soft_cap: float | None = None,
    sinks: jax.Array | None = None,
) -> jax.Array:
    """Computes attention over one or more axes with one einsum over whole arrays per product.

    Args:
        query: array of shape (b, ..., heads, d).
        key: array of shape (b, ..., groups, d), with the query's sizes except on `axes`.
        value: array of shape (b, ..., groups, f).
        mask: Boolean array that broadcasts to (b, other axes, heads, query's attended axes, key's
            attended axes), with as many axes; None for all True.
        bias: array of the shape that `mask` has, added before the softmax.
        soft_cap: bound c of the logits, which become `c * tanh(logits / c)` before the bias; None
            for none.
        sinks: array of shape (b or 1, heads): for each head one more logit, which counts in the sum of the softmax
            and has no value; None for no such logit. Neither `scale` nor `soft_cap` changes the logit.

    Returns:
        An array of shape (b, ..., heads, f).

    Example:
        >>> import jax.numpy as jnp
        >>> x = jnp.ones((2, 5, 6, 4, 3))
        >>> attend(x, x, x, axes=(1, 2)).shape
        (2, 5, 6, 4, 3)
    """
    parts = _exponentials(query, key, mask, bias, scale, axes, soft_cap, sinks, value.dtype)
    scores, keys, queries = equations(key.ndim, axes, parts.grouped)
    equation = f"{scores},{keys}->{queries}"
    if value.dtype == wide_dtype(value.dtype):
        ordered = _is_ordered(query, key, axes)
        value = varied(value, axes[0], parts.weights) if ordered else value
        y = weighted_mean(equation, parts.weights, parts.total, value, ordered)
    else:
        # divide after the sum over keys: the result is the smallest array.
        # A product: XLA's TPU compiler would compute the quotients of the gradient again for each tile of
        # the next product. Sums are at least 1, the exponential of the largest entry, so no square underflows.
        # A quotient for one query, for which the compiler would compute the reciprocals in an operation of
        # their own.
        y, total = wide_product(equation, parts.weights, value), rows_of(equation, parts.total)
        y = y / total if _is_one_query(query, axes) else y * (1 / total)
    y = y.astype(value.dtype)
    return jnp.reshape(y, (*query.shape[:-1], value.shape[-1])) if parts.grouped else y


def attend_with_weights(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    mask: jax.Array | None = None,
    bias: jax.Array | None = None,
    scale: float = 1.0,
    axes: Sequence[int] = (1,),
    drop: Callable[[jax.Array], jax.Array] | None = None,
    soft_cap: float | None = None,
    sinks: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Computes attention like `attend`, and also returns the attention weights.

    Args:
        query: as for `attend`.
        key: as for `attend`.
        value: as for `attend`.
        mask: as for `attend`.
        bias: as for `attend`.
        scale: as for `attend`.
        axes: as for `attend`.
        drop: function applied to the weights before the product with the values, e.g. dropout.
        soft_cap: as for `attend`.
        sinks: as for `attend`.

    Returns:
        The means of the values, and the weights before `drop`, of shape (b, other axes, heads,
        query's attended axes, key's attended axes).
    """
    parts = _exponentials(query, key, mask, bias, scale, axes, soft_cap, sinks)
    scores, keys, queries = equations(key.ndim, axes, parts.grouped)
    weights = divide(parts.weights, parts.total).astype(value.dtype)
    dropped = weights if drop is None else drop(weights)
    y = jnp.einsum(f"{scores},{keys}->{queries}", dropped, value)
    if not parts.grouped:
        return y, weights
    heads_axis = weights.ndim - 2 * len(axes) - 2
    weights = jnp.reshape(
        weights, (*weights.shape[:heads_axis], query.shape[-2], *weights.shape[heads_axis + 2 :])
    )
    return jnp.reshape(y, (*query.shape[:-1], value.shape[-1])), weights


class _Exponentials(NamedTuple):
    weights: jax.Array
    total: jax.Array
    grouped: bool


def _exponentials(
    query: jax.Array,
    key: jax.Array,
    mask: jax.Array | None,
    bias: jax.Array | None,
    scale: float,
    axes: Sequence[int],
    soft_cap: float | None,
    sinks: jax.Array | None,
    dtype: Any = None,
) -> _Exponentials:
    """Computes the unnormalized weights, in `dtype`, and their sums, in float32 or float64."""
    heads, groups = query.shape[-2], key.shape[-2]
    if heads % groups:
        raise ValueError(
            "attention: expected a number of query heads divisible by the number of key heads, "
            f"received {heads} query heads and {groups} key heads. Give a number of key heads that "
            f"divides {heads}."
        )
    grouped = heads != groups
    # The query is smaller than the scores, and XLA's TPU compiler computes product and softmax in one
    # loop only if nothing is between them. A factor in 16 bits would be less exact than the query.
    if scale != 1:
        query = (query.astype(wide_dtype(query.dtype)) * scale).astype(query.dtype)
    if sinks is not None:
        others = (1,) * (query.ndim - len(axes) - 3)
        sinks = jnp.reshape(sinks, (sinks.shape[0], *others, heads, *(1,) * (2 * len(axes))))
        sinks = sinks.astype(wide_dtype(query.dtype))
    is_ordered = _is_ordered(query, key, axes)
    if is_ordered:
        key = varied(key, axes[0], query)
    if _is_one_query(query, axes):
        # XLA's TPU compiler would copy both halves of a rotated query for their concatenation in the product
        query = jax.lax.optimization_barrier(query)
    # splitting the query's heads into (groups, heads per group) avoids copying the keys
    if grouped:
        query = jnp.reshape(query, (*query.shape[:-2], groups, heads // groups, query.shape[-1]))
        mask, bias, sinks = (_split_heads(x, groups, 2 * len(axes)) for x in (mask, bias, sinks))
    scores, keys, queries = equations(key.ndim, axes, grouped)
    if grouped and is_ordered:
        order = _rows(scores, queries, axes)
        query, queries = jnp.einsum(f"{queries}->{order}", query), order
    equation = f"{queries},{keys}->{scores}"
    config: Any = jax.config  # JAX declares its flags at run time
    form = QueryScores(equation, config.jax_default_matmul_precision)
    if form.suits(query, key):
        logits = compute(form, query, key)
    else:
        logits = wide_product(equation, query, key)
    if soft_cap is not None:
        logits = soft_cap * jnp.tanh(logits / soft_cap)
    if bias is not None:
        logits = logits + bias.astype(logits.dtype)
    # products of finite numbers are finite; a bias is often -inf
    reduced = range(-len(axes), 0)
    weights, total = exponentials(logits, mask, reduced, dtype, bias is None, sinks)
    return _Exponentials(weights, total, grouped)


def _is_one_query(query: jax.Array, axes: Sequence[int]) -> bool:
    """Returns whether the attended axes have one entry, as in a step of decoding; False for symbolic sizes."""
    return all(query.shape[axis] == 1 for axis in axes)


def _is_ordered(query: jax.Array, key: jax.Array, axes: Sequence[int]) -> bool:
    """Returns whether products have queries and results in the order of the scores' rows.

    In another order XLA's CPU compiler transposes the scores, which takes long for many queries. Symbolic
    sizes count as many.
    """
    sizes = [query.shape[axis] for axis in axes]
    known = all(isinstance(size, int) for size in sizes)
    return not known or math.prod(sizes) * query.shape[-2] >= _MANY * key.shape[-2]


def _rows(scores: str, queries: str, axes: Sequence[int]) -> str:
    """Returns the subscripts of queries in the order of the scores' rows."""
    return scores[: -len(axes)] + queries[-1]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _wide_product(equation: str, x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.einsum(equation, x, y, preferred_element_type=wide_dtype(x.dtype))


@_wide_product.defjvp
def _wide_product_jvp(equation: str, primals: tuple, tangents: tuple) -> tuple:
    (x, y), (x_tangent, y_tangent) = primals, tangents
    # results in the dtype of the operands: the products of the gradient then have operands of this
    # dtype, too, where JAX's rule would multiply by a float32 array
    tangent = jnp.einsum(equation, x_tangent, y) + jnp.einsum(equation, x, y_tangent)
    return _wide_product(equation, x, y), tangent.astype(wide_dtype(x.dtype))


_compiled_product = jax.jit(_wide_product, static_argnums=0, inline=True)


def wide_product(equation: str, x: jax.Array, y: jax.Array) -> jax.Array:
    """Returns the einsum of two arrays of one dtype, in float32 or float64.

    Example:
        >>> wide_product("ab,bc->ac", jnp.ones((1, 2), "bfloat16"), jnp.ones((2, 1), "bfloat16"))
        Array([[2.]], dtype=float32)
    """
    if x.dtype == y.dtype == wide_dtype(x.dtype):
        return jnp.einsum(equation, x, y)
    return _compiled_product(equation, x, y)


def equations(rank: int, axes: Sequence[int], grouped: bool = False) -> tuple[str, str, str]:
    """Returns the einsum subscripts of scores, keys (and values), and queries (and results).

    Upper-case letters are the key's attended axes.

    Example:
        >>> equations(4, (1,))
        ('acbB', 'aBcd', 'abcd')
    """
    letters = string.ascii_lowercase[:rank]
    keys = "".join(n.upper() if i in axes else n for i, n in enumerate(letters))
    group_letter = "z" if grouped else ""
    queries = letters[:-1] + group_letter + letters[-1]
    batch_letters = "".join(n for i, n in enumerate(letters[:-1]) if i not in axes)
    attended = "".join(letters[a] for a in axes)
    return batch_letters + group_letter + attended + attended.upper(), keys, queries


def causal_mask(queries: Any, keys: Any, take: Take = whole) -> jax.Array:
    """Returns the mask (queries, keys) that lets step t attend to the steps up to t.

    `take` selects the queries, here and below.
    """
    return take(jnp.arange(queries), 0)[:, None] >= jnp.arange(keys)[None, :]


def window_mask(queries: Any, keys: Any, window: int, take: Take = whole) -> jax.Array:
    """Returns the mask (queries, keys) that lets step t attend to steps less than `window` away."""
    return jnp.abs(take(jnp.arange(queries), 0)[:, None] - jnp.arange(keys)[None, :]) < window


def both(one: jax.Array | None, other: jax.Array | None) -> jax.Array | None:
    """Returns the logical and of two masks; None means True everywhere."""
    if one is None or other is None:
        return other if one is None else one
    return jnp.logical_and(one, other)


def of_keys(x: jax.Array | None, keys: slice) -> jax.Array | None:
    """Returns the part of a mask or bias (..., s or 1) that belongs to some keys."""
    return x if x is None or x.shape[-1] == 1 else x[..., keys]


def clear_empty_rows(y: jax.Array, mask: jax.Array) -> jax.Array:
    """Replaces `y` by zeros for queries that attend to no key.

    Args:
        y: array of shape (b, t, heads, f).
        mask: a Boolean array that broadcasts to (b, heads, t, s).
    """
    return jnp.where(_rows_with_keys(mask), y, jnp.zeros_like(y))


def _rows_with_keys(mask: jax.Array) -> jax.Array:
    return jnp.swapaxes(jnp.any(mask, axis=-1), 1, 2)[..., None]


def fill_empty_rows(y: jax.Array, value: jax.Array, mask: jax.Array) -> jax.Array:
    """Replaces `y` by the mean of all values for queries that attend to no key.

    Args:
        y: array of shape (b, t, heads, f).
        value: array of shape (b, s, groups, f).
        mask: a Boolean array that broadcasts to (b, heads, t, s).

    Example:
        >>> import jax.numpy as jnp
        >>> value = jnp.array([1.0, 5.0]).reshape(1, 2, 1, 1)
        >>> fill_empty_rows(jnp.zeros((1, 1, 1, 1)), value, jnp.zeros((1, 1, 1, 2), bool)).ravel()
        Array([3.], dtype=float32)
    """
    # the mean of no values would be NaN
    if value.shape[1] == 0:
        return y
    wide = wide_dtype(value.dtype)
    mean = jnp.mean(value, axis=1, keepdims=True, dtype=wide).astype(y.dtype)
    mean = jnp.repeat(mean, y.shape[2] // value.shape[2], axis=2)
    return jnp.where(_rows_with_keys(mask), y, mean)


def _split_heads(x: jax.Array | None, groups: int, axes_after: int) -> jax.Array | None:
    """Splits the head axis of a mask or bias into groups and heads per group."""
    if x is None:
        return None
    head_axis = x.ndim - axes_after - 1
    heads = x.shape[head_axis]
    split = (1, 1) if heads == 1 else (groups, heads // groups)
    return jnp.reshape(x, (*x.shape[:head_axis], *split, *x.shape[head_axis + 1 :]))
