"""Calls of the rows of the table of operations."""

import jax
import numpy as np

import fkeras as fk


def arrays_of(row):
    """The arrays among the arguments of a row."""
    leaves = jax.tree.leaves((row.args, dict(row.kwargs)))
    return [leaf for leaf in leaves if isinstance(leaf, np.ndarray)]


def call(row, arrays):
    """Calls a row of `fk.ops` with other arrays."""
    remaining = iter(arrays)
    args, kwargs = jax.tree.map(
        lambda leaf: next(remaining) if isinstance(leaf, np.ndarray) else leaf,
        (row.args, dict(row.kwargs)),
        is_leaf=lambda leaf: leaf is None,
    )
    if row.call is not None:
        return row.call(fk.ops, *args, **kwargs)
    function = fk.ops
    for part in row.name.split("."):
        function = getattr(function, part)
    return function(*args, **kwargs)
