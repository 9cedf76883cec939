"""The lanes of a population's program: members, filled up to whole groups on all devices."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


@dataclasses.dataclass(frozen=True)
class Lanes:
    """The members that a program computes.

    Attributes:
        members: the number of the member of each lane; lanes after `count` repeat the first member.
        count: number of lanes with a member of their own.
        group: number of lanes that a device computes at once.
    """

    members: np.ndarray
    count: int
    group: int

    @property
    def active(self) -> np.ndarray:
        """Booleans, False for lanes that only fill up."""
        return np.arange(len(self.members)) < self.count

    def of(self, members: np.ndarray) -> np.ndarray:
        """Returns the entries of the lanes of an array with an entry for each member."""
        return members[self.members]


def lanes_of(members: np.ndarray, limit: int | None, devices: int = 1) -> Lanes:
    """Returns lanes for some members.

    Args:
        members: the numbers of the members.
        limit: largest number of members of a group, or None.
        devices: number of devices that share the members.
    """
    on_device = -(-len(members) // devices)
    groups = -(-on_device // min(limit or on_device, on_device))
    group = -(-on_device // groups)
    filled = np.full(groups * group * devices, members[0])
    filled[: len(members)] = members
    return Lanes(filled, len(members), group)


def layout_of(mesh: Mesh | None, lanes: int) -> NamedSharding | None:
    """Returns the layout that splits the members over all devices, if the devices share them evenly."""
    if mesh is None or lanes % mesh.size:
        return None
    return NamedSharding(mesh, PartitionSpec(mesh.axis_names))


def everywhere(mesh: Mesh | None, tree: object) -> object:
    """Returns arrays whole on every device of the mesh."""
    if mesh is None:
        return tree
    return jax.device_put(tree, NamedSharding(mesh, PartitionSpec()))
