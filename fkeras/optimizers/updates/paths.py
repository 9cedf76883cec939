"""Paths of the weights in any pytree, and the patterns that choose among them."""

from __future__ import annotations

import fnmatch
from typing import Any

import jax


def flatten(tree: Any) -> tuple[tuple[str, ...], list[Any], Any]:
    """`(paths, leaves, structure)` of a pytree, the paths such as "dense/kernel".

    Example:
        >>> flatten({"dense": {"kernel": 1, "bias": 2}})[:2]
        (('dense/bias', 'dense/kernel'), [2, 1])
    """
    pairs, structure = jax.tree_util.tree_flatten_with_path(tree)
    paths = (jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in pairs)
    return tuple(paths), [leaf for _, leaf in pairs], structure


def mentions(pattern: str, path: str) -> bool:
    """Whether a name occurs in a path, or a pattern with *, ? or [] fits all of it.

    Example:
        >>> mentions("bias", "dense/bias"), mentions("norm*", "dense/norm"), mentions("d*", "dense")
        (True, False, True)
    """
    if any(sign in pattern for sign in "*?["):
        return fnmatch.fnmatchcase(path, pattern)
    return pattern in path
