"""Checks the ids that a model looks up in tables, such as those of an Embedding.

A compiled program cannot report the row of a wrong id, so the host checks the arrays before they
are cast and transferred.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from fkeras.engine import Network
from fkeras.engine.call.network_inputs import inputs_of
from fkeras.engine.network.id_tables import id_tables
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
    lookups = id_tables(model)
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
