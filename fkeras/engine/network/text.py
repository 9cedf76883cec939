"""A network as lines: the calls with their layers, shapes and numbers of weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fkeras.engine.config.configurable import describe
from fkeras.engine.graph.listing import Lines, listing
from fkeras.engine.layer.layer import Layer
from fkeras.engine.network.summary import count_numbers
from fkeras.engine.symbolic.operation import Operation
from fkeras.engine.tree.array_list import weights_by_path
from fkeras.engine.tree.skeleton import leaves_of
from fkeras.engine.tree.weight_dtypes import dtypes_besides_policy


def network_lines(network: Any) -> Lines:
    """Returns a network as a function: one line for each call, with the calls of nested networks below.

    Args:
        network: a network, built or not.
    """
    remark = _counted(network).replace(", ", "  # ", 1)
    return [(f"{describe(network)}:{remark}", list(_body(network)))]


def _body(network: Any) -> Iterator[tuple[str, Lines]]:
    if network.graph is None:
        for name in network.layers:
            text, remark, below = _layer(network.layers[name])
            yield f"{name} = {text}{remark.replace(',', '  #', 1)}", below
        return

    def described(name: str, again: bool) -> tuple[str, str, Lines]:
        return (name, "", []) if again else _layer(network.layers[name])

    yield from listing(network.graph, described)


def _layer(layer: Any) -> tuple[str, str, Lines]:
    """Returns text, remark and nested lines of a layer."""
    is_network = hasattr(layer, "graph")
    counted = _counted(layer)
    # leaves that are no arrays are shown themselves
    remark = counted if is_network or has_arrays(layer) else _values(layer)
    if counted and not is_network:
        dtypes = dtypes_besides_policy(layer)
        remark += f" in {' and '.join(dtypes)}" if dtypes else ""
    if counted and not layer.trainable:
        remark += ", frozen"
    if isinstance(layer, Operation):
        return f"ops.{layer.op.name}", remark, []
    plain = is_network or type(layer).__repr__ is Layer.__repr__
    # the remark counts the weights, so the text has no shapes of weights
    shown = layer if is_network else layer._unbuilt()
    text = describe(shown, omitted=("name",)) if plain else repr(layer)
    return text, remark, list(_body(layer)) if is_network else []


def has_arrays(layer: Any) -> bool:
    """Returns whether all leaves are arrays or specs; those of `jax.tree.map(jnp.shape, model)` are not."""
    return all(
        leaf is None or (hasattr(leaf, "shape") and hasattr(leaf, "dtype"))
        for leaf in leaves_of(layer)
    )


def _counted(layer: Any) -> str:
    """Returns a remark with the number of weights; "" without weights, and if the leaves are no arrays."""
    if not has_arrays(layer):
        return ""
    count = count_numbers(leaves_of(layer))
    return f", {count:,} weights" if count else ""


def _values(layer: Any) -> str:
    leaves = weights_by_path(layer).items()
    return "".join(f", {path}={leaf!r}" for path, leaf in leaves if leaf is not None)
