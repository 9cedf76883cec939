"""Errors about donated arrays, which name the value to use instead."""

from __future__ import annotations

from collections.abc import Iterator

import jax
from jax.core import Tracer

from fkeras.engine.tree.array_list import weights_by_path
from fkeras.engine.tree.skeleton import leaves_of
from fkeras.engine.values.annotations import Layer, Leaf, Tree

SAVE_THE_NEW = "Save the value that the function returned."


class DonatedError(RuntimeError):
    """A model or run was used after a compiled function had overwritten its arrays.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.Dense(2).build(jax.random.key(0), (None, 3))
        >>> halved = jax.jit(lambda layer: jax.tree.map(lambda a: a / 2, layer), donate_argnums=0)
        >>> new = halved(layer)
        >>> try:
        ...     layer(jnp.ones((1, 3)))
        ... except DonatedError as error:
        ...     print("is gone. It was donated to a compiled function" in str(error))
        True
    """


def gone_arrays(tree: Tree) -> Iterator[str]:
    """Yields the paths of the arrays in a tree that were donated or deleted."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if isinstance(leaf, jax.Array) and not _traced(leaf):
            if leaf.is_deleted():
                names = (getattr(k, "name", getattr(k, "key", getattr(k, "idx", k))) for k in path)
                yield "/".join(map(str, names))


def _traced(leaf: Leaf) -> bool:
    return isinstance(leaf, Tracer)


def check_donated(tree: Tree, where: str, remedy: str) -> None:
    """Raises an error for a tree with a donated array.

    Args:
        tree: a model, run or other pytree that is about to be used.

    Raises:
        DonatedError: for the first donated array; the message has its path.
    """
    leaves = jax.tree.leaves(tree)
    path = None
    # the paths are computed only after a first look: this check runs at every training call
    if any(
        leaf.is_deleted() for leaf in leaves if isinstance(leaf, jax.Array) and not _traced(leaf)
    ):
        path = next(gone_arrays(tree), None)
    if path is not None:
        raise DonatedError(
            f"{where}: the array {path!r} is gone. It was donated to a compiled function "
            f"(donate_argnums), which overwrote the array, or deleted. {remedy}"
        ) from None


def check_layer(layer: Layer, error: Exception, others: Tree = ()) -> None:
    """Replaces an error of JAX that is due to a donated array; returns for any other error.

    Raises:
        DonatedError: for a donated weight or argument.
    """
    if "deleted" not in str(error) and "donated" not in str(error):
        return
    name = "model" if hasattr(layer, "graph") else "layer"
    remedy = (
        f"Use the value that the function returned: {name}, ... = step({name}, ...); to keep the "
        f"old value too, donate a copy: jax.tree.map(jnp.copy, {name})."
    )
    check_donated(weights_by_path(layer), layer._where, remedy)
    check_donated(others, f"{layer._where}: its arguments", remedy.replace(name, "state"))
    if any(isinstance(leaf, Tracer) for leaf in leaves_of(layer)):
        # under jax.grad a tracer hides the array, so the path of the array is not known
        raise DonatedError(
            f"{layer._where}: an array of the layer or of its arguments is gone. It was donated to "
            f"a compiled function (donate_argnums), or deleted. {remedy}"
        ) from None
