"""Paths of the leaves of a pytree, and patterns that select paths."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax

from fkeras.engine import suggest


def flatten(tree: Any) -> tuple[tuple[str, ...], list[Any], Any]:
    """Returns `(paths, leaves, structure)` of a pytree, with paths such as "dense/kernel"."""
    pairs, structure = jax.tree_util.tree_flatten_with_path(tree)
    paths = (jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in pairs)
    return tuple(paths), [leaf for _, leaf in pairs], structure


def mentions(pattern: str, path: str) -> bool:
    """Returns whether a name occurs in a path, or a pattern with *, ? or [] matches the whole path."""
    if any(sign in pattern for sign in "*?["):
        return fnmatch.fnmatchcase(path, pattern)
    return pattern in path


def idle(
    where: str, patterns: Iterable[str], paths: Sequence[str], matches: Callable[[str, str], Any]
) -> Iterator[str]:
    """Yields a warning for each pattern of an argument that matches no weight.

    Example:
        >>> list(idle("AdamW: exclude_from_weight_decay", ["bias"], ["dense/bias"], mentions))
        []
    """
    for pattern in patterns:
        if not any(matches(pattern, path) for path in paths):
            shown = ", ".join(paths[:12]) + ", ..." * (len(paths) > 12)
            yield (
                f"{where}: {pattern!r} matches no weight.{suggest(pattern, paths)} Correct or "
                f"remove the name. The weights are: {shown or 'none'}."
            )
