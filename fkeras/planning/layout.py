"""The splits of a run and a batch over the devices of a mesh."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax

from fkeras.engine.tree.skeleton import leaves_of, skeleton_of
from fkeras.planning.program.operations import item_bytes
from fkeras.planning.program.splits import Mesh, Split, local_shape, whole
from fkeras.training.step.sharding_rules import batch_entry, names_of, weight_specs


class Devices(NamedTuple):
    """A mesh without devices, for plans of meshes that this machine does not have.

    Attributes:
        shape: number of devices along each mesh axis.
    """

    shape: Mapping[str, int]

    @property
    def axis_names(self) -> tuple[str, ...]:
        """The names of the mesh axes."""
        return tuple(self.shape)

    @property
    def count(self) -> int:
        """The number of devices."""
        return math.prod(self.shape.values())


class Layout(NamedTuple):
    """How devices share the arrays of a step.

    Attributes:
        mesh: the devices; None for one device.
        splits: the split of each argument of the step, in the order of its leaves.
        sizes: number of devices along each mesh axis.
    """

    mesh: Mesh | None
    splits: tuple[Split, ...]
    sizes: Mapping[str, int]

    def tree_bytes(self, tree: Any, start: int) -> list[int]:
        """Returns the bytes on one device for each leaf of a tree."""
        return [
            math.prod(local_shape(leaf.shape, self.splits[start + i], self.sizes))
            * item_bytes(leaf.dtype)
            for i, leaf in enumerate(jax.tree.leaves(tree))
        ]


def layout(devices: Devices | None, sharding: Any, run: Any, batch: Any, rows: int) -> Layout:
    """Returns how devices share the arrays of a run and a batch, by the rules of a trainer.

    Args:
        devices: the mesh, or None for one device.
        sharding: the checked `sharding` of a trainer.
    """
    leaves = jax.tree.leaves((run, batch))
    if devices is None or devices.count == 1:
        return Layout(None, tuple(whole(leaf.shape) for leaf in leaves), {})
    specs = weight_specs(devices, sharding, run.model)
    shapes = dict(zip(skeleton_of(run.model).names, leaves_of(run.model), strict=True))
    shapes = {path: leaf.shape for path, leaf in shapes.items() if leaf is not None}

    def parted(entry: Any) -> tuple[str, ...]:
        # an axis of one device divides nothing, and needs no communication
        return tuple(name for name in names_of(entry) if devices.shape[name] > 1)

    def weight(path: str) -> Split:
        entries = [*specs[path], *(None,) * (len(shapes[path]) - len(specs[path]))]
        return tuple(parted(entry) for entry in entries)

    def slot(path: tuple, leaf: Any) -> Split:
        # as the trainer places the slots of its optimizer
        for key in reversed(path):
            name = getattr(key, "key", None)
            if name is not None and shapes.get(name) == leaf.shape:
                return weight(name)
        return whole(leaf.shape)

    splits = [weight(path) for path in shapes]
    others = jax.tree.leaves(run)[len(splits) :]
    state = len(jax.tree.leaves(run.state))
    slots = [slot(*each) for each in jax.tree_util.tree_flatten_with_path(run.opt_state)[0]]
    splits += [whole(leaf.shape) for leaf in others[:state]]
    splits += slots
    splits += [whole(leaf.shape) for leaf in others[state + len(slots) :]]
    names = parted(batch_entry(devices, sharding))
    for leaf in jax.tree.leaves(batch):
        has_rows = leaf.shape[:1] == (rows,)
        splits.append((names, *whole(leaf.shape[1:])) if has_rows else whole(leaf.shape))
    sizes = dict(devices.shape)
    return Layout(Mesh(sizes, rows, names), tuple(splits), sizes)
