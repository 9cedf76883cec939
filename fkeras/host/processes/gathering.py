"""Whole values of arrays that are spread over several processes, for files and for the host.

A process can read its own shards only. Each array is gathered on the devices first, one array after the
other: a device holds its share of all arrays and one whole array.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from fkeras.host.processes.alone import Alone
from fkeras.host.processes.arrays import is_key, put
from fkeras.host.processes.calls import together


def is_spread(tree: object) -> bool:
    """Returns whether an array of a tree has shards on devices of other processes."""
    return any(map(_is_spread, jax.tree.leaves(tree)))


def processes_of(tree: object) -> Mesh | None:
    """Returns a mesh of the devices on which a tree is spread, for `together`; None for a local tree.

    Raises:
        ValueError: for arrays that are spread over different processes.

    Example:
        >>> processes_of({"w": jax.numpy.ones(2)}) is None
        True
    """
    meshes: dict[tuple[int, ...], Mesh] = {}
    for leaf in jax.tree.leaves(tree):
        if _is_spread(leaf):
            devices = sorted(leaf.sharding.device_set, key=lambda device: device.id)
            numbers = tuple(sorted({device.process_index for device in devices}))
            if numbers not in meshes:
                meshes[numbers] = Mesh(np.asarray(devices), ("devices",))
    if len(meshes) > 1:
        listing = " and ".join(str(list(numbers)) for numbers in meshes)
        raise ValueError(
            f"expected arrays that are spread over the same processes, received arrays on {listing}. "
            "Put them on one mesh: jax.device_put(tree, layout)."
        )
    return next(iter(meshes.values()), None)


def gathered(tree: object, group: Alone | None = None, *, only_leader: bool = False) -> Any:
    """Returns a tree with each spread array as a whole NumPy array; keys stay typed keys.

    Every process of the arrays makes this call. Arrays of this process, and other leaves, are returned
    as they are. Arrays that every process has whole are read without communication.

    Args:
        group: the group of the joint call; None to make a joint call.
        only_leader: whether only the process that writes files reads the arrays; the others then get
            None for the tree.

    Raises:
        ProcessError: if another process has ended, or makes another call.

    Example:
        >>> gathered({"rate": 0.1})
        {'rate': 0.1}
    """
    if group is None:
        with together(processes_of(tree), "gathered") as group:
            return gathered(tree, group, only_leader=only_leader)
    reads = group.leads or not only_leader
    leaves, structure = jax.tree.flatten(tree)
    # a run and its model share arrays, which are gathered once
    values: dict[int, Any] = {}
    for leaf in leaves:
        if _is_spread(leaf) and id(leaf) not in values:
            values[id(leaf)] = _whole(leaf, group, reads)
    return structure.unflatten([values.get(id(leaf), leaf) for leaf in leaves]) if reads else None


def _is_spread(leaf: object) -> bool:
    return (
        isinstance(leaf, jax.Array)
        and not isinstance(leaf, Tracer)
        and not leaf.is_fully_addressable
    )


def _whole(array: jax.Array, group: Alone, reads: bool) -> Any:
    if is_key(array):
        data = _whole(jax.random.key_data(array), group, reads)
        return (
            data
            if data is None
            else jax.random.wrap_key_data(data, impl=jax.random.key_impl(array))
        )
    if not array.is_fully_replicated:
        array = put(array, _replicated(array))
    # before reading, which would wait forever for a process that has ended
    group.wait(array)
    return np.asarray(array.addressable_data(0)) if reads else None


def _replicated(array: jax.Array) -> NamedSharding:
    sharding = array.sharding
    if isinstance(sharding, NamedSharding):
        return NamedSharding(sharding.mesh, PartitionSpec())
    devices = sorted(sharding.device_set, key=lambda device: device.id)
    return NamedSharding(Mesh(np.asarray(devices), ("devices",)), PartitionSpec())
