"""Fingerprints of data: shapes, dtypes, and a digest of sampled rows."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.training.checkpoint.storage.arrays import named_leaves
from fkeras.training.data.array_feed import Feed
from fkeras.training.data.stream_feed import Batches
from fkeras.transforms.comparison.fingerprinting import digest, function_name, kind_of

#: number of rows of an array in its digest: constant, so large memory-mapped files stay fast
_ROWS = 256


def data_fingerprint(*sources: Feed | Batches | None, **facts: object) -> dict[str, Any]:
    """Returns the fingerprint of the data of a training.

    The fingerprint of an array is its shape, its dtype and a digest of 256 evenly spaced rows. The
    fingerprint of a source of batches is its class, its length, and the result of its method
    `fingerprint()`, if the source has these.

    Args:
        *sources: inputs, targets and weights: arrays or nested containers of arrays, or a source
            of batches, or a feed of `fit`. None for a missing source.
        **facts: other settings that affect the batches, such as batch_size or shuffle.

    Returns:
        JSON data for `compare`.

    Example:
        >>> import numpy as np
        >>> from fkeras.training.checkpoint import compare, data_fingerprint
        >>> x, y = np.zeros((8, 3), "float32"), np.zeros(8, "int32")
        >>> print(*compare({"data": data_fingerprint(x, y)}, {"data": data_fingerprint(x, y[:4])}))
        data: y.array was 'int32[8]', is 'int32[4]'
    """
    fingerprint: dict[str, Any] = {}
    names = iter(("x", "y", "sample_weight"))
    for number, source in enumerate(sources):
        if isinstance(source, Feed):
            parts = source.tree if type(source.tree) is tuple else (source.tree,)
            fingerprint |= data_fingerprint(*parts, batch_size=source.size, steps=source.steps)
        elif isinstance(source, Batches):
            fingerprint |= {"source": _source(source.source), "steps": source.steps}
        else:
            name = next(names, f"source_{number}")
            if source is not None:
                fingerprint[name] = _facts(source)
    return {**fingerprint, **facts}


def _facts(source: object) -> dict[str, Any]:
    if not _is_tree(source):
        return _source(source)
    leaves = named_leaves(source)
    if list(leaves) == ["value"]:
        return _array(leaves["value"])
    return {name: _array(leaf) for name, leaf in leaves.items()}


def _is_tree(source: object) -> bool:
    # JAX warns about an iterator as a leaf, unless `is_leaf` accepts the iterator.
    leaves = jax.tree.leaves(source, is_leaf=lambda node: hasattr(node, "__next__"))
    return bool(leaves) and all(
        hasattr(leaf, "shape") and hasattr(leaf, "dtype") for leaf in leaves
    )


def _array(array: jax.Array | np.ndarray) -> dict[str, Any]:
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    rows = np.asarray(array) if isinstance(array, jax.Array) or not array.shape else array
    rows = np.atleast_1d(rows) if not rows.shape else rows
    # Rows are selected before the conversion: a memory-mapped file is read in few places.
    indices = np.unique(np.linspace(0, max(len(rows) - 1, 0), _ROWS).astype("int64"))
    samples = np.ascontiguousarray(rows[indices[: len(rows)]])
    return {"array": kind_of(array), "digest": digest(samples.tobytes())}


def _source(source: object) -> dict[str, Any]:
    facts: dict[str, Any] = {"class": function_name(source)}
    get_fingerprint = getattr(source, "fingerprint", None)
    if isinstance(source, Sized):
        facts["length"] = len(source)
    if callable(get_fingerprint):
        facts["own"] = get_fingerprint()
    elif isinstance(source, list | tuple) and source and _is_tree(source[0]):
        facts["first"] = _facts(source[0])
    elif isinstance(source, Mapping):
        facts["keys"] = sorted(map(str, source))
    return facts
