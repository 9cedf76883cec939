"""Checks the ids that a model looks up in tables, such as those of an Embedding.

A compiled program cannot report the row of a wrong id, so the host checks the arrays before they
are cast and transferred.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import jax.numpy as jnp
import numpy as np

from fkeras.engine import Network
from fkeras.engine.call.network_inputs import inputs_of, match_inputs
from fkeras.engine.tree.skeleton import Skeleton, skeleton_of
from fkeras.engine.values import structure
from fkeras.engine.values.argument_types import Arrays
from fkeras.training.data import host_arrays

# Larger ids are not indices (hashes, missing-value codes): do not suggest such an `input_dim`.
_MOST = 1 << 31


def check_ids(model: Network, x: Arrays) -> None:
    """Rejects ids that are not whole numbers or exceed the rows of their Embedding or other table.

    In a compiled program such an id yields NaN.

    Args:
        x: host arrays in the structure of the inputs, before any cast.

    Raises:
        ValueError: with the row, the layer and the id.
    """
    lookups = tables(model)
    arrays = inputs_of(model.graph, x) if lookups else ()
    for input_index, layer, count in lookups if arrays else ():
        if arrays[input_index] is None:  # an optional input
            continue
        for start, ids in host_arrays.blocks(arrays[input_index]):
            _check_block(ids, start, layer, count)


def _check_block(ids: np.ndarray, start: int, layer: str, count: int) -> None:
    if ids.size == 0 or ids.dtype == bool:
        return
    is_integer = jnp.issubdtype(ids.dtype, jnp.integer)
    if is_integer and int(ids.min()) >= 0 and int(ids.max()) < count:
        return
    # The fast test above needs no temporary array; this slow one finds the position.
    with np.errstate(invalid="ignore"):  # NaN in float ids: reported below, not as a warning
        fits = (ids >= 0) & (ids < count)
        fits = fits if is_integer else fits & (ids == np.floor(ids))
    if fits.all():
        return
    position = tuple(map(int, np.argwhere(~fits)[0]))
    value = ids[position].item()
    remedy = "Map the ids to this range."
    if value != value or value % 1:
        remedy = "Ids must be integers: round them, or pass an integer array."
    elif count <= value < _MOST:
        largest_id = int(ids[ids < _MOST].max())
        remedy = (
            f"Give the layer input_dim={largest_id + 1} rows or more, or map the ids to this range."
        )
    shown_position = [position[0] + start, *position[1:]]
    raise ValueError(
        f"x, row {shown_position[0]}: {layer!r} expected ids from 0 to {count - 1}, received "
        f"{value} at {shown_position}. {remedy}"
    )


def tables(model: Network) -> tuple[tuple[int, str, int], ...]:
    """Returns `(index of the input, layer, number of ids)` for each lookup of an input's ids.

    Example:
        >>> import fkeras as fk
        >>> tables(fk.Sequential([fk.Input((3,), dtype="int32"), fk.layers.Embedding(5, 2)]))
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
