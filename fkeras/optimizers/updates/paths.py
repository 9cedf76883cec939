"""Paths of the leaves of a pytree, and patterns that select paths."""

from __future__ import annotations

import fnmatch
from typing import Any

import jax


def flatten(tree: Any) -> tuple[tuple[str, ...], list[Any], Any]:
    """Returns `(paths, leaves, structure)` of a pytree, with paths such as "dense/kernel".

    Example:
        >>> flatten({"dense": {"kernel": 1, "bias": 2}})[:2]
        (('dense/bias', 'dense/kernel'), [2, 1])
    """
    pairs, structure = jax.tree_util.tree_flatten_with_path(tree)
    paths = (jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in pairs)
    return tuple(paths), [leaf for _, leaf in pairs], structure


def mentions(pattern: str, path: str) -> bool:
    """Returns whether a name occurs in a path, or a pattern with *, ? or [] matches the whole path.

    Example:
        >>> mentions("bias", "dense/bias"), mentions("norm*", "dense/norm"), mentions("d*", "dense")
        (True, False, True)
    """
    if any(sign in pattern for sign in "*?["):
        return fnmatch.fnmatchcase(path, pattern)
    return pattern in path
