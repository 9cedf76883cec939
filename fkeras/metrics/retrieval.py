"""Retrieval metrics: how many of the relevant items are among the first k, and at which ranks.

Each query has scores of all items of a corpus, or the numbers of its best items in order.
`fk.utils.nearest_items` finds the best items of a large corpus.
"""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp

from fkeras.engine.config.configurable import option
from fkeras.engine.config.converters import boolean, integer, text
from fkeras.engine.config.field_types import Integer
from fkeras.engine.values.argument_types import Numbers
from fkeras.engine.values.arrays import as_operand
from fkeras.engine.values.registry import named
from fkeras.losses.reducing import divide_no_nan
from fkeras.metrics.metric import FunctionMean
from fkeras.nn.numerics.axes import format_shape, may_equal

_PADDING = -1


def _gains(
    where: str, y_true: Numbers, y_pred: Numbers, k: int, sparse_y_true: bool, from_sorted_ids: bool
) -> tuple[jax.Array, jax.Array]:
    """Returns the gain of each of the first k items, and the largest gains in order, both (b, k).

    A row of NaN scores has NaN gains.
    """
    y_true, y_pred = as_operand(y_true, "y_true"), as_operand(y_pred, "y_pred")
    if y_pred.ndim != 2 or not may_equal(y_true.shape[:1], y_pred.shape[:1]):
        raise ValueError(
            f"{where}: expected predictions (b, items) and targets with the same rows, received shapes "
            f"{format_shape(y_pred.shape)} and {format_shape(y_true.shape)}."
        )
    k = min(k, y_pred.shape[1])
    is_known = jnp.ones((), bool)
    if from_sorted_ids:
        first = y_pred[:, :k].astype("int32")
    else:
        first = jax.lax.top_k(y_pred, k)[1]
        is_known = ~jnp.any(jnp.isnan(y_pred), axis=1, keepdims=True)
    if sparse_y_true:
        y_true = y_true[:, None] if y_true.ndim == 1 else y_true
        if y_true.ndim != 2:
            raise ValueError(
                f"{where}: expected the numbers of the relevant items, (b,) or (b, n) padded with -1, "
                f"received shape {format_shape(y_true.shape)}."
            )
        items = y_true.astype("int32")
        count = jnp.sum((items >= 0).astype("int32"), axis=1, keepdims=True)
        hits = (jnp.expand_dims(first, 2) == jnp.expand_dims(items, 1)) & jnp.expand_dims(
            items >= 0, 1
        )
        gains = jnp.any(hits, axis=2).astype("float32")
        largest = (jnp.arange(k, dtype="int32")[None] < count).astype("float32")
    else:
        if from_sorted_ids or not may_equal(y_true.shape, y_pred.shape):
            raise ValueError(
                f"{where}: expected the relevance of every item, of the predictions' shape "
                f"{format_shape(y_pred.shape)}, received {format_shape(y_true.shape)}"
                f"{' with from_sorted_ids=True' if from_sorted_ids else ''}. For numbers of items write "
                "sparse_y_true=True."
            )
        relevance = y_true.astype("float32")
        gains = jnp.take_along_axis(relevance, first, axis=1)
        largest = jax.lax.top_k(relevance, k)[0]
    return jnp.where(is_known, gains, jnp.nan), largest


def _relevant(y_true: Numbers, sparse_y_true: bool) -> jax.Array:
    """Returns the number of relevant items of each query, (b,)."""
    y_true = as_operand(y_true, "y_true")
    y_true = y_true[:, None] if y_true.ndim == 1 else y_true
    return jnp.sum((y_true >= 0 if sparse_y_true else y_true > 0).astype("float32"), axis=-1)


def recall_at_k(
    y_true: Numbers,
    y_pred: Numbers,
    k: int = 10,
    sparse_y_true: bool = True,
    from_sorted_ids: bool = False,
) -> jax.Array:
    """Returns the share of the relevant items of each query that are among its first k items.

    Args:
        y_true: the numbers of the relevant items, (b,), or (b, n) with different numbers in a row,
            padded with -1; with `sparse_y_true=False` the relevance of every item, (b, items),
            where items above 0 are relevant.
        y_pred: a score for each item of the corpus, (b, items).
        k: number of items.
        sparse_y_true: whether targets are numbers of items.
        from_sorted_ids: whether predictions are numbers of items, best first, (b, k) or more.

    Returns:
        A share for each query, (b,); 0 without relevant items, NaN for a score of NaN.

    Raises:
        ValueError: for shapes that do not fit.

    Example:
        >>> import fkeras as fk
        >>> scores = [[0.1, 0.9, 0.5, 0.2]]
        >>> fk.metrics.recall_at_k([[1, 3]], scores, k=2)
        Array([0.5], dtype=float32)
        >>> fk.metrics.recall_at_k([[1, 3]], [[1, 2, 3, 0]], k=3, from_sorted_ids=True)
        Array([1.], dtype=float32)
    """
    gains, _ = _gains("recall_at_k", y_true, y_pred, k, sparse_y_true, from_sorted_ids)
    hits = jnp.sum(jnp.where(jnp.isnan(gains), gains, (gains > 0).astype("float32")), axis=1)
    return divide_no_nan(hits, _relevant(y_true, sparse_y_true))


def ndcg(
    y_true: Numbers,
    y_pred: Numbers,
    k: int = 10,
    sparse_y_true: bool = True,
    from_sorted_ids: bool = False,
) -> jax.Array:
    """Returns the discounted gain of the first k items, divided by that of the best order (NDCG at k).

    The discounted gain is sum(relevance / log2(rank + 1)) over the ranks 1 to k.

    Args:
        y_true: as of `recall_at_k`; numbers of items have the relevance 1. Relevances are 0 or more.
        Other arguments: those of `recall_at_k`.

    Returns:
        A number from 0 to 1 for each query, (b,); 0 without relevant items, NaN for a score of NaN.

    Raises:
        ValueError: for shapes that do not fit.

    Example:
        >>> import fkeras as fk
        >>> scores = [[0.9, 0.5, 0.1], [0.9, 0.5, 0.1]]
        >>> [round(float(one), 4) for one in fk.metrics.ndcg([0, 1], scores)]
        [1.0, 0.6309]

    References:
        Jarvelin and Kekalainen 2002, Cumulated gain-based evaluation of IR techniques,
        https://doi.org/10.1145/582415.582418
    """
    gains, largest = _gains("ndcg", y_true, y_pred, k, sparse_y_true, from_sorted_ids)
    discounts = 1.0 / jnp.log2(jnp.arange(2, gains.shape[1] + 2, dtype="float32"))[None]
    return divide_no_nan(jnp.sum(gains * discounts, axis=1), jnp.sum(largest * discounts, axis=1))


class _Retrieval(FunctionMean):
    """Base class of means over the queries that have a relevant item.

    Args of the family:
        k: number of items.
        sparse_y_true: whether targets are the numbers of the relevant items, (b,), or (b, n) padded with
            -1, instead of the relevance of every item, (b, items).
        from_sorted_ids: whether predictions are numbers of items, best first, instead of scores
            (b, items).

    Raises of the family:
        ValueError: for `k` below 1; in `update`, for shapes that do not fit.
    """

    _positional: ClassVar[tuple[str, ...]] = ("k", "name", "dtype")

    k: Integer = option(default=10, convert=integer(minimum=1))
    sparse_y_true: bool = option(default=True, convert=boolean, kw_only=True)
    from_sorted_ids: bool = option(default=False, convert=boolean, kw_only=True)

    def _target_mask(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array | None:
        return _relevant(y_true, self.sparse_y_true) > 0


class RecallAtK(_Retrieval):
    """Mean share of the relevant items of a query that are among its first k items.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.RecallAtK(k=2)
        >>> scores = [[0.1, 0.9, 0.5, 0.2], [0.9, 0.1, 0.5, 0.2]]
        >>> metric.result(metric.update(metric.init(), [[1, 3], [0, -1]], scores))
        Array(0.75, dtype=float32)
    """

    _function = staticmethod(recall_at_k)
    name: str | None = option(default="recall_at_k", convert=text(optional=True))


class NDCG(_Retrieval):
    """Mean discounted gain of the first k items of a query, divided by that of the best order.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.NDCG(k=3, sparse_y_true=False)
        >>> state = metric.update(metric.init(), [[3.0, 0.0, 1.0]], [[0.9, 0.5, 0.1]])
        >>> round(float(metric.result(state)), 4)
        0.9639

    References:
        Jarvelin and Kekalainen 2002, Cumulated gain-based evaluation of IR techniques,
        https://doi.org/10.1145/582415.582418
    """

    _function = staticmethod(ndcg)
    name: str | None = option(default="ndcg", convert=text(optional=True))


METRICS = (
    named(RecallAtK, "recall_at_k"),
    named(NDCG, "ndcg"),
)
