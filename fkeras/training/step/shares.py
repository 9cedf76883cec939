"""The share of each process in the rows of a batch, and batches of the rows of all processes.

The mesh axes of the role "batch" split a batch into blocks of rows. A process needs the rows of the blocks
on its devices. Processes with the same blocks have the same share: they split only the weights.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from fkeras.host.processes.arrays import put
from fkeras.host.processes.calls import members_of
from fkeras.training.records.annotations import Trainer
from fkeras.training.step.sharding import check_rows
from fkeras.training.step.sharding_rules import Entry, batch_entry, mesh_of, parts_of


def share_of(trainer: Trainer) -> tuple[int, int]:
    """Returns `(index, count)`: the share of the rows of this process, and the number of shares.

    Raises:
        ValueError: for a mesh in which two processes have some of their blocks of rows in common.

    Example:
        >>> import fkeras as fk
        >>> share_of(fk.Trainer("sgd", "mse"))
        (0, 1)
    """
    if len(members_of(trainer.mesh)) < 2:
        return 0, 1
    mesh = mesh_of(trainer)
    blocks = _blocks(mesh, batch_entry(mesh, trainer.sharding))
    shares = sorted(set(blocks.values()))
    return shares.index(blocks[jax.process_index()]), len(shares)


@functools.lru_cache(maxsize=64)
def _blocks(mesh: jax.sharding.Mesh, entry: Entry) -> dict[int, tuple[int, ...]]:
    """Returns the blocks of rows of each process."""
    parts = parts_of(mesh, entry)
    layout = NamedSharding(mesh, PartitionSpec(entry))
    blocks: dict[int, set[int]] = {}
    for device, (rows,) in layout.devices_indices_map((parts,)).items():
        owned = range(parts)[rows]
        blocks.setdefault(device.process_index, set()).update(owned)
    shares = {frozenset(owned) for owned in blocks.values()}
    if sum(map(len, shares)) != parts or len({len(share) for share in shares}) > 1:
        shown = "; ".join(f"process {p}: {sorted(owned)}" for p, owned in sorted(blocks.items()))
        raise ValueError(
            f"Trainer: expected a mesh whose axis {entry!r} gives processes the same blocks of rows or "
            f"other blocks, received blocks that overlap in part ({shown}). Order the devices of the "
            "mesh by process, as jax.make_mesh and mesh_utils.create_hybrid_device_mesh do."
        )
    return {process: tuple(sorted(owned)) for process, owned in blocks.items()}


def joined(trainer: Trainer, tree: object) -> Any:
    """Returns stacked batches of all processes, from the stacked batches of this process.

    Args:
        tree: arrays of shape (batches, rows of this process, ...).
    """
    mesh = mesh_of(trainer)
    entry = batch_entry(mesh, trainer.sharding)
    layout = NamedSharding(mesh, PartitionSpec(None, entry))
    own_blocks = _blocks(mesh, entry)[jax.process_index()]
    parts = parts_of(mesh, entry)

    def join(array: np.ndarray) -> jax.Array:
        check_rows(trainer, array.shape[1] * (parts // len(own_blocks)))
        block = array.shape[1] // len(own_blocks)

        def rows(index: Any) -> np.ndarray:
            start, stop, _ = index[1].indices(block * parts)
            # a device may hold several blocks, which are then neighbours
            first = own_blocks.index(start // block) * block
            return array[:, first : first + stop - start]

        return jax.make_array_from_callback(
            (array.shape[0], block * parts, *array.shape[2:]), layout, rows
        )

    return jax.tree.map(join, tree)


def spread(trainer: Trainer, tree: object) -> Any:
    """Returns stacked batches that every process has whole, with their rows split over the devices.

    Args:
        tree: arrays of shape (batches, rows, ...).
    """
    mesh = mesh_of(trainer)
    entry = batch_entry(mesh, trainer.sharding)
    parts = parts_of(mesh, entry)

    def split(array: np.ndarray) -> jax.Array:
        even = array.shape[1] % parts == 0
        layout = NamedSharding(mesh, PartitionSpec(None, entry if even else None))
        return put(array, layout)

    return jax.tree.map(split, tree)
