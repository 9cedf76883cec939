"""`nearest_items`: the best items of a corpus for each query, without an array of all scores."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine.config.converters import integer
from fkeras.engine.messages.errors import describe_value
from fkeras.engine.values.argument_types import Numbers
from fkeras.engine.values.arrays import as_operand

# most scores that are computed at once
_MOST_SCORES = 1 << 24
_count = integer(minimum=1)


@functools.partial(jax.jit, static_argnums=2)
def _best(queries: jax.Array, corpus: jax.Array, k: int) -> jax.Array:
    scores = jnp.matmul(queries, corpus.T, preferred_element_type="float32")
    return jax.lax.top_k(scores, k)[1].astype("int32")


def nearest_items(queries: Numbers, corpus: Numbers, k: int = 10) -> np.ndarray:
    """Returns the numbers of the k items with the largest dot products with each query, best first.

    The scores of some queries with the whole corpus are computed at once, at most 2**24 numbers. For
    cosines, normalize both: `fk.utils.normalize(x)`.

    Args:
        queries: embeddings of queries, (b, d).
        corpus: embeddings of items, (items, d).
        k: number of items for each query, at most the number of items.

    Returns:
        Numbers of items, (b, k), int32, for `fk.metrics.RecallAtK(k, from_sorted_ids=True)`.

    Raises:
        ValueError: for embeddings of different widths, and more than all items.

    Example:
        >>> import fkeras as fk
        >>> fk.utils.nearest_items([[1.0, 0.0]], [[0.0, 1.0], [2.0, 0.0], [1.0, 0.0]], k=2)
        array([[1, 2]], dtype=int32)
    """
    k = _count.check("nearest_items: k", k)
    arrays: list[Any] = [as_operand(queries, "queries"), as_operand(corpus, "corpus")]
    shapes = [a.shape for a in arrays]
    if [len(shape) for shape in shapes] != [2, 2] or shapes[0][1] != shapes[1][1]:
        raise ValueError(
            f"nearest_items: expected queries (b, d) and a corpus (items, d), received the shapes "
            f"{shapes[0]} and {shapes[1]}."
        )
    if k > shapes[1][0]:
        raise ValueError(
            f"nearest_items: expected k from 1 to {shapes[1][0]}, the number of items, received "
            f"{describe_value(k)}."
        )
    dtype = jnp.result_type("float32", *(a.dtype for a in arrays if a.dtype == "float64"))
    first, items = (a.astype(dtype) for a in arrays)
    rows = max(_MOST_SCORES // len(items), 1)
    starts = range(0, len(first), rows)
    parts = [np.asarray(_best(first[start : start + rows], items, k)) for start in starts]
    return np.concatenate(parts) if parts else np.zeros((0, k), "int32")
