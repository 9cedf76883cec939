"""Encodings of indices as vectors: one-hot, multi-hot and counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.layers.common import authoring as fk

#: index of entries such as masked tokens, which contribute nothing to a vector
NOTHING = -1
#: index of invalid values: their vector is NaN
INVALID = -2


def output_mode(*modes: str) -> Callable[[Any], str]:
    """Returns a converter of output modes that also accepts Keras's older names of two modes."""
    check = fk.choice(*modes)
    older = {"binary": "multi_hot", "tf-idf": "tf_idf"}
    return lambda value: check(older.get(value, value) if isinstance(value, str) else value)


def _as_samples(ids: fk.Leaf, mode: str) -> fk.Leaf:
    """Reshapes a scalar to a sample of one entry, and drops a last axis of size 1 for one-hot."""
    if ids.ndim == 0:
        return ids.reshape((1,))
    if mode == "one_hot" and ids.ndim > 1 and ids.shape[-1] == 1:
        return ids.reshape(ids.shape[:-1])
    return ids


def encode(
    ids: jax.Array, depth: int, mode: str, dtype: str, count_weights: jax.Array | None = None
) -> jax.Array:
    """Encodes indices as vectors of size `depth`; `NOTHING` adds nothing, `INVALID` gives NaN.

    Integer vectors cannot contain NaN: there `INVALID` adds nothing.

    Args:
        ids: array of integers of shape (..., n).
        mode: "one_hot" for a vector per index, "multi_hot" for a vector per sample (the last axis)
            with a 1 for each index that occurs, "count" for the number of occurrences.
        count_weights: array like `ids`: weight of each index in the mode "count".

    Returns:
        An array of shape (..., depth); in the mode "one_hot" of shape (..., n, depth), or
        (..., depth) if n is 1.

    Example:
        >>> import jax.numpy as jnp
        >>> encode(jnp.array([[0, 2, 2]]), 3, "count", "float32")
        Array([[1., 0., 2.]], dtype=float32)
    """
    ids = _as_samples(ids, mode)
    # comparing with all indices, unlike a scatter, ignores negative indices
    indices = fk.align(jnp.arange(depth, dtype=ids.dtype), ids.ndim + 1)
    matches = jnp.expand_dims(ids, -1) == indices
    invalid = jnp.expand_dims(ids == INVALID, -1)
    if mode == "one_hot":
        return _mark_invalid(matches.astype(dtype), invalid)
    invalid = jnp.any(invalid, axis=-2)
    if mode == "multi_hot":
        return _mark_invalid(jnp.any(matches, axis=-2).astype(dtype), invalid)
    if count_weights is None:
        return _mark_invalid(jnp.sum(matches, axis=-2, dtype="int32").astype(dtype), invalid)
    weights = count_weights.astype(dtype).reshape((*ids.shape, 1))
    return _mark_invalid(
        jnp.sum(jnp.where(matches, weights, jnp.zeros_like(weights)), axis=-2), invalid
    )


def _mark_invalid(vectors: jax.Array, invalid: jax.Array) -> jax.Array:
    if not jnp.issubdtype(vectors.dtype, jnp.floating):
        return vectors
    return jnp.where(invalid, jnp.full_like(vectors, jnp.nan), vectors)


def encode_on_host(ids: np.ndarray, depth: int, mode: str, dtype: str) -> np.ndarray:
    """Encodes indices with NumPy; counts in place, without a temporary array of n * depth entries."""
    ids = _as_samples(ids, mode)
    leading_shape = ids.shape if mode == "one_hot" else ids.shape[:-1]
    counts = np.zeros((int(np.prod(leading_shape, dtype=np.int64)), depth), np.int64)
    in_range = (ids >= 0) & (ids < depth)
    rows = np.arange(len(counts)).reshape(
        leading_shape if mode == "one_hot" else (*leading_shape, 1)
    )
    # np.add.at counts repeated indices, which indexed assignment would not
    np.add.at(counts, (np.broadcast_to(rows, ids.shape)[in_range], ids[in_range]), 1)
    if mode == "multi_hot":
        counts = np.minimum(counts, 1)
    return counts.astype(fk.canonical_dtype(dtype)).reshape((*leading_shape, depth))
