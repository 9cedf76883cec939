"""The entries of a state, such as the moving averages of batch normalizations, by path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax


def state_entries(state: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the arrays of a state by path, such as "block_0/norm/moving_mean".

    Example:
        >>> state_entries({"norm": {"moving_mean": 1.0}})
        {'norm/moving_mean': 1.0}
    """
    leaves = jax.tree_util.tree_leaves_with_path(dict(state or {}))
    return {"/".join(str(entry.key) for entry in path): leaf for path, leaf in leaves}
