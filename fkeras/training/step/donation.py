"""Decides whether a step overwrites the arrays of its run, which saves the memory of a second run.

An exception during a step that overwrites its arguments loses the run. XLA raises most errors before
a program begins: in the compilation, and when memory is missing. Functions of the host that the step
calls, such as those of `jax.pure_callback`, raise in the middle: then the run before the step has to
stay. Between two steps, others may refer to the arrays of a run: callbacks, `run.memory`, the caller.
"""

from __future__ import annotations

import sys
from typing import Any

import jax

from fkeras.training.records.state import own_copy

_CALLBACKS = ("pure_callback", "io_callback", "debug_callback")


def calls_host(program: object) -> bool:
    """Returns whether a jaxpr calls functions of the host."""
    if isinstance(program, list | tuple):
        return any(map(calls_host, program))
    program = getattr(program, "jaxpr", program)
    return any(
        equation.primitive.name in _CALLBACKS or any(map(calls_host, equation.params.values()))
        for equation in getattr(program, "eqns", ())
    )


def owned(leaves: tuple) -> tuple:
    """Returns arrays that only the returned tuple refers to: copies of the arrays in other use.

    Args:
        leaves: the only tuple of the caller with these arrays.
    """
    # CPython counts three references: by the tuple, by `leaf`, and by the argument of `getrefcount`.
    # Views of NumPy need no copy: XLA does not overwrite memory with a view.
    return tuple(
        own_copy(leaf) if not isinstance(leaf, jax.Array) or sys.getrefcount(leaf) > 3 else leaf
        for leaf in leaves
    )


_moved = jax.jit(lambda leaves: leaves, donate_argnums=0)


def moved(tree: Any) -> Any:
    """Returns a tree with the memory of the arrays of another tree, which can then not be used any more."""
    leaves, structure = jax.tree.flatten(tree)
    arrays = {id(leaf): leaf for leaf in leaves if isinstance(leaf, jax.Array)}
    new = dict(zip(arrays, _moved(tuple(arrays.values())), strict=True))
    return jax.tree.unflatten(structure, [new.get(id(leaf), leaf) for leaf in leaves])


def without_repeats(tree: Any) -> Any:
    """Returns a tree whose arrays can be donated: copies of arrays that the tree has twice.

    Example:
        >>> import jax.numpy as jnp
        >>> one = jnp.ones(2)
        >>> first, second = without_repeats((one, one))
        >>> first is one, second is one
        (True, False)
    """
    leaves, structure = jax.tree.flatten(tree)
    if len(set(map(id, leaves))) == len(leaves):
        return tree
    seen: set[int] = set()
    new = []
    for leaf in leaves:
        new.append(own_copy(leaf) if id(leaf) in seen else leaf)
        seen.add(id(leaf))
    return jax.tree.unflatten(structure, new)
