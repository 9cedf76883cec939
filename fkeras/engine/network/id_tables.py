"""The inputs of a network whose values are ids: rows of tables, such as those of an Embedding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fkeras.engine.call.network_inputs import match_inputs
from fkeras.engine.network.network import Network
from fkeras.engine.tree.skeleton import Skeleton, skeleton_of
from fkeras.engine.values import structure


def id_tables(model: Network) -> tuple[tuple[int, str, int], ...]:
    """Returns `(index of the input, layer, number of ids)` for each lookup of an input's ids.

    Example:
        >>> import fkeras as fk
        >>> id_tables(fk.Sequential([fk.Input((3,), dtype="int32"), fk.layers.Embedding(5, 2)]))
        ((0, 'embedding', 5),)
    """
    # Cached on the skeleton: each step creates a new model, but all share one skeleton.
    return skeleton_of(model).derive(_tables)


def _tables(skeleton: Skeleton) -> tuple[tuple[int, str, int], ...]:
    # Only the graph matters here, so a model without arrays is enough.
    model = skeleton.join((None,) * len(skeleton.names))
    input_indices = {slot: index for index, slot in enumerate(model.graph.input_slots)}
    return tuple(_find(model, input_indices, ""))


def _find(
    network: Network, input_indices: Mapping[int, int], path: str
) -> Iterator[tuple[int, str, int]]:
    readers = [
        call for call in network.graph.calls if not input_indices.keys().isdisjoint(call.inputs)
    ]
    for call in readers:
        layer, name = network.layers[call.layer], f"{path}{call.layer}"
        refs = structure.thaw(call.args, lambda leaf: leaf)
        if isinstance(layer, Network) and layer.graph is not None:
            inner_inputs = zip(
                layer.graph.input_slots, match_inputs(layer, tuple(refs)), strict=True
            )
            inner_indices = {
                slot: input_indices[ref.index]
                for slot, ref in inner_inputs
                if isinstance(ref, structure.Ref) and ref.index in input_indices
            }
            yield from _find(layer, inner_indices, f"{name}/")
            continue
        # `reverse` marks an embedding that multiplies by its transposed table: inputs are no ids.
        count = getattr(layer, "id_count", getattr(layer, "input_dim", None))
        if not isinstance(count, int) or structure.thaw(call.options, lambda v: v).get("reverse"):
            continue
        for leaf in structure.leaves(call.args):
            if isinstance(leaf, structure.Ref) and leaf.index in input_indices:
                yield input_indices[leaf.index], name, count
