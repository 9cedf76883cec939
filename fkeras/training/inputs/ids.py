"""Checks of the ids that a model looks up in tables, before they are cast and compiled.

A compiled program cannot report the row of a wrong id, so the host checks the arrays in their own
dtypes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from fkeras.engine import Network
from fkeras.engine.call.network_inputs import inputs_of, match_inputs
from fkeras.engine.tree.skeleton import Skeleton, skeleton_of
from fkeras.engine.values import structure
from fkeras.training.data import host_arrays

# above this, a number of ids is no size of a table
_MOST = 1 << 31


def check_ids(model: Any, x: Any) -> None:
    """Raises where ids of an Embedding (or another table) have no row in it, or are not whole.

    In a compiled program such an id yields NaN.

    Args:
        model: a model that knows its inputs.
        x: host arrays in the structure of its inputs, in their own dtypes.

    Raises:
        ValueError: naming the row, the layer and the id.
    """
    found = tables(model)
    arrays = inputs_of(model.graph, x) if found else ()
    for place, layer, count in found if arrays else ():
        if arrays[place] is None:  # an optional input
            continue
        for start, ids in host_arrays.blocks(arrays[place]):
            _check_block(ids, start, layer, count)


def _check_block(ids: np.ndarray, start: int, layer: str, count: int) -> None:
    if ids.size == 0 or ids.dtype == bool:
        return
    whole = jnp.issubdtype(ids.dtype, jnp.integer)
    if whole and int(ids.min()) >= 0 and int(ids.max()) < count:
        return
    with np.errstate(invalid="ignore"):
        fits = (ids >= 0) & (ids < count)
        fits = fits if whole else fits & (ids == np.floor(ids))
    if fits.all():
        return
    place = tuple(map(int, np.argwhere(~fits)[0]))
    value = ids[place].item()
    remedy = "Map the ids into its range."
    if value != value or value % 1:
        remedy = "Ids are whole numbers: round them, or pass integers."
    elif count <= value < _MOST:
        highest = int(ids[ids < _MOST].max())
        remedy = (
            f"Give the layer input_dim={highest + 1} rows or more, or map the ids into its range."
        )
    shown = [place[0] + start, *place[1:]]
    raise ValueError(
        f"x, row {shown[0]}: {layer!r} expected ids from 0 to {count - 1}, received {value} at "
        f"{shown}. {remedy}"
    )


def tables(model: Any) -> tuple[tuple[int, str, int], ...]:
    """For each layer that looks up ids of an input: the input's place, the layer, how many ids.

    Example:
        >>> import fkeras as fk
        >>> tables(fk.Sequential([fk.Input((3,), dtype="int32"), fk.layers.Embedding(5, 2)]))
        ((0, 'embedding', 5),)
    """
    # a training makes a new model each step, of the same skeleton
    return skeleton_of(model).derive(_tables)


def _tables(skeleton: Skeleton) -> tuple[tuple[int, str, int], ...]:
    model = skeleton.join((None,) * len(skeleton.names))
    places = {slot: place for place, slot in enumerate(model.graph.input_slots)}
    return tuple(_find(model, places, ""))


def _find(network: Any, places: Mapping[int, int], path: str) -> Iterator[tuple[int, str, int]]:
    readers = [call for call in network.graph.calls if not places.keys().isdisjoint(call.inputs)]
    for call in readers:
        layer, name = network.layers[call.layer], f"{path}{call.layer}"
        refs = structure.thaw(call.args, lambda leaf: leaf)
        if isinstance(layer, Network) and layer.graph is not None:
            inner = zip(layer.graph.input_slots, match_inputs(layer, tuple(refs)), strict=True)
            known = {
                slot: places[ref.index]
                for slot, ref in inner
                if isinstance(ref, structure.Ref) and ref.index in places
            }
            yield from _find(layer, known, f"{name}/")
            continue
        count = getattr(layer, "id_count", getattr(layer, "input_dim", None))
        if not isinstance(count, int) or structure.thaw(call.options, lambda v: v).get("reverse"):
            continue
        for leaf in structure.leaves(call.args):
            if isinstance(leaf, structure.Ref) and leaf.index in places:
                yield places[leaf.index], name, count
