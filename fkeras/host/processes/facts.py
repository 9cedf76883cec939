"""Facts of a run and of arguments that all processes of a joint call must have in common."""

from __future__ import annotations

import zlib
from collections.abc import Collection
from typing import Any

import jax
import numpy as np

from fkeras.engine.values.argument_types import ArrayLike
from fkeras.host.processes.arrays import with_key_data

# Larger arrays are compared in evenly spaced elements, and larger arrays on devices by their shape: the
# comparison must cost less than a step.
_SAMPLES, _READ = 256, 1 << 16


def run_facts(run: Any, without_memories: Collection[str] = ()) -> dict[str, str]:
    """Returns a digest of each array of a run that this process can read, by path."""
    memory = {name: value for name, value in run.memory.items() if name not in without_memories}
    return array_facts(run.replace(memory=memory))


def array_facts(tree: object) -> dict[str, str]:
    """Returns dtype, shape and a digest of each array of a tree, by path.

    An array that is split over processes has no digest: its shards are values of one array already.

    Example:
        >>> array_facts({"w": np.zeros(2, "int8")})
        {'w': 'int8[2] 41d912ff'}
    """
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): _fact(leaf) for path, leaf in leaves
    }


def digest(tree: object) -> int:
    """Returns a checksum of the arrays of a tree, from up to 65,536 elements of each.

    Example:
        >>> digest({"w": np.zeros(2, "int8")}) == digest({"w": np.ones(2, "int8")})
        False
    """
    value = 0
    for leaf in jax.tree.leaves(tree):
        value = zlib.crc32(_elements(leaf, _READ), value)
    return value


def _elements(array: ArrayLike, number: int) -> bytes:
    """Returns evenly spaced elements of an array."""
    flat = np.asarray(with_key_data(array)).reshape(-1)
    if flat.size > number:
        flat = flat[np.linspace(0, flat.size - 1, number).astype("int64")]
    return flat.tobytes()


def _fact(leaf: Any) -> str:
    leaf = with_key_data(leaf)
    leaf = leaf if hasattr(leaf, "dtype") else np.asarray(leaf)
    kind = f"{np.dtype(leaf.dtype).name}{list(leaf.shape)}"
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        if not leaf.is_fully_replicated or leaf.size > _READ:
            return kind
        leaf = leaf.addressable_data(0)
    return f"{kind} {zlib.crc32(_elements(leaf, _SAMPLES)):08x}"
