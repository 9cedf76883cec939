"""Divides arrays that several processes hold into parts, and puts arrays together from parts.

A process saves the shards of which it has the first replica, so each element is saved once. A process
that restores an array needs only the parts that overlap the slices of its own devices; the number of
processes and devices may differ from those of the save.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from fkeras.host.processes.alone import Alone
from fkeras.host.processes.arrays import is_key
from fkeras.training.checkpoint.storage import arrays as named
from fkeras.training.checkpoint.storage.errors import BrokenSaveError
from fkeras.training.checkpoint.storage.manifest import in_parts
from fkeras.training.checkpoint.storage.orbax_files import read_arrays
from fkeras.training.checkpoint.storage.part_files import (
    Part,
    check_files,
    check_sizes,
    folder_name,
)

#: bytes of small arrays that orbax reads in one call from each folder, together
_BATCH = 1 << 26

Bounds = tuple[tuple[int, int], ...]


def own_shards(array: jax.Array, group: Alone) -> list[Any]:
    """Returns the shards of an array that this process saves."""
    # each process has a local array of its own: process 0 saves for all
    if array.is_fully_addressable and not group.leads:
        return []
    return [shard for shard in array.addressable_shards if shard.replica_id == 0]


def own_slices(sharding: jax.sharding.Sharding, shape: Sequence[int]) -> dict[Any, Bounds]:
    """Returns the slice of an array that each device of this process holds."""
    indices = sharding.addressable_devices_indices_map(tuple(shape))
    return {device: _bounds(index or (), shape) for device, index in indices.items()}


def own_parts(tree: object, group: Alone) -> tuple[dict[str, Any], list[Part]]:
    """Returns host copies of the parts of a tree that this process saves.

    Returns:
        Shape and dtype of all arrays by name, and the parts. The arrays may then be donated.

    Raises:
        TypeError: for a leaf that is neither an array nor a number.
        CheckpointError: for a donated array, or an array of processes outside of the group.
    """
    leaves = named.named_leaves(tree)
    for name, leaf in leaves.items():
        named.check_leaf(name, leaf, joint=group.count > 1)
    facts: dict[str, Any] = {}
    sources: list[tuple[str, tuple[int, ...], Any]] = []
    for name, leaf in leaves.items():
        dtype, shape = named.kind_of(leaf)
        facts[name] = {"shape": shape, "dtype": dtype}
        if isinstance(leaf, jax.Array):
            for shard in own_shards(named.plain(leaf), group):
                bounds = _bounds(shard.index, shape)
                sources.append((name, tuple(start for start, _ in bounds), shard.data))
        elif group.leads:
            sources.append((name, (0,) * len(shape), leaf))
    # start all transfers before waiting for the first one, so that the transfers overlap
    for _, _, data in sources:
        if isinstance(data, jax.Array):
            data.copy_to_host_async()
    parts = [Part(name, start, named.host_copy(data)) for name, start, data in sources]
    return facts, [part for part in parts if part.data.size]


def read_tree(save: str, body: Mapping[str, Any], like: Any) -> Any:
    """Returns the arrays of a save as a tree; reads only what the devices of this process need.

    Args:
        like: the tree of arrays or specs, whose structure fits the save.

    Raises:
        BrokenSaveError: if a file is damaged.
    """
    source = _Source(save, body)
    targets = {
        name: Target(leaf, body["arrays"][name]) for name, leaf in named.named_leaves(like).items()
    }
    needed = [
        (name, part)
        for name, target in targets.items()
        for part in source.parts[name]
        if target.overlaps(part)
    ]
    source.expect(needed)
    leaves, position = [], 0
    for name, target in targets.items():
        while position < len(needed) and needed[position][0] == name:
            target.fill(needed[position][1], source.read(*needed[position]))
            position += 1
        leaves.append(target.leaf())
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


class _Source:
    """The folders of a save; a save of one process has one folder, where each array is one part.

    Attributes:
        parts: the parts of each array, by the array's name.
    """

    def __init__(self, save: str, body: Mapping[str, Any]):
        self.save, self.arrays, self.files = save, body["arrays"], body["files"]
        self.parts = {
            name: facts["parts"] if in_parts(body) else _only_part(name, facts)
            for name, facts in self.arrays.items()
        }
        self._expected: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
        self._batches: dict[str, dict[str, np.ndarray]] = {}
        check_sizes(save, self.files)

    def expect(self, parts: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Announces the arrays and parts that `read` will read, in their order."""
        for name, part in parts:
            self._expected.setdefault(part["folder"], []).append((name, part))
        for folder, entries in self._expected.items():
            entries.reverse()  # `_next_names` takes entries from the end
            # before orbax reads any: orbax does not detect every damage
            check_files(self.save, self.files, folder)

    def read(self, name: str, part: Mapping[str, Any]) -> np.ndarray:
        """Returns the next announced part."""
        folder = part["folder"]
        if not self._batches.get(folder):
            try:
                self._batches[folder] = read_arrays(
                    os.path.join(self.save, folder), self._next_names(folder)
                )
            except Exception as error:
                # Orbax and its libraries raise any class of exception for a damaged file.
                text = str(error).splitlines() or [""]
                raise BrokenSaveError(
                    f"{folder} cannot be read by orbax ({type(error).__name__}: {text[0]:.200})"
                ) from error
        array = self._batches[folder].pop(part["name"])
        facts = {"shape": part["shape"], "dtype": self.arrays[name]["dtype"]}
        if named.facts_of(array) != {**facts, "crc32": part["crc32"]}:
            raise BrokenSaveError(
                f"the array {part['name']} in {folder} differs from the saved array"
            )
        return array

    def _next_names(self, folder: str) -> list[str]:
        entries, names, size = self._expected[folder], [], 0
        while entries:
            name, part = entries[-1]
            size += math.prod(part["shape"]) * named.dtype_of(self.arrays[name]["dtype"]).itemsize
            if names and size > _BATCH // len(self._expected):
                break
            names.append(part["name"])
            entries.pop()
        return names


def _only_part(name: str, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the part that is a whole array; an empty array has no part."""
    if 0 in facts["shape"]:
        return []
    place = {"folder": folder_name(0), "name": name, "start": [0] * len(facts["shape"])}
    return [{**place, "shape": facts["shape"], "crc32": facts["crc32"]}]


class Target:
    """One leaf of a restored tree while its parts are read."""

    def __init__(self, like: Any, facts: Mapping[str, Any]):
        self.like, self.shape = like, tuple(facts["shape"])
        self.dtype = named.dtype_of(facts["dtype"])
        self.sharding = self._sharding()
        self.devices: dict[Any, Bounds] = {}
        if self.sharding is not None:
            self.devices = own_slices(self.sharding, self.shape)
        all_bounds = set(self.devices.values())
        if self.sharding is None:
            all_bounds = {tuple((0, size) for size in self.shape)}
        self.slices: dict[Bounds, np.ndarray | None] = dict.fromkeys(all_bounds)

    def _sharding(self) -> Any:
        """Returns the sharding if each device gets a slice of its own; None for a whole array."""
        sharding = None
        is_spec = isinstance(self.like, jax.Array | jax.ShapeDtypeStruct)
        if is_spec and not named.loses_bits(self.dtype):
            sharding = named.sharding_of(self.like)
        if sharding is not None and is_key(self.like):
            if isinstance(self.like, jax.Array):
                return jax.random.key_data(self.like).sharding
            # the data of keys have one more axis, which these shardings do not split
            kinds = (jax.sharding.NamedSharding, jax.sharding.SingleDeviceSharding)
            return sharding if isinstance(sharding, kinds) else None
        return sharding

    def overlaps(self, part: Mapping[str, Any]) -> bool:
        """Returns whether a device of this process needs a part."""
        return any(_overlap(bounds, part) is not None for bounds in self.slices)

    def fill(self, part: Mapping[str, Any], data: np.ndarray) -> None:
        """Copies a part into the slices that the part overlaps."""
        for bounds, array in self.slices.items():
            overlap = _overlap(bounds, part)
            if overlap is None:
                continue
            if array is None:
                if _bounds_of(part) == bounds:  # usual: the layout of the save
                    self.slices[bounds] = data
                    continue
                array = self.slices[bounds] = np.empty([b - a for a, b in bounds], self.dtype)
            array[_within(overlap, [a for a, _ in bounds])] = data[_within(overlap, part["start"])]

    def leaf(self) -> Any:
        """Returns the complete leaf."""
        # an empty array has no part
        slices = {
            bounds: np.empty([b - a for a, b in bounds], self.dtype) if array is None else array
            for bounds, array in self.slices.items()
        }
        if self.sharding is None:
            [array] = slices.values()
            return named.put_leaf(self.like, array)
        memory = self.sharding.memory_kind
        pieces = [
            jax.device_put(
                slices[bounds],
                jax.sharding.SingleDeviceSharding(device, memory_kind=memory),
                may_alias=False,  # a step may donate the array
            )
            for device, bounds in self.devices.items()
        ]
        array = jax.make_array_from_single_device_arrays(
            self.shape,
            self.sharding,
            pieces,
            dtype=self.dtype,  # a process without devices of the array has no pieces
        )
        if is_key(self.like):
            return jax.random.wrap_key_data(array, impl=named.generator(self.like))
        return array


def _bounds(index: Sequence[slice], shape: Sequence[int]) -> Bounds:
    """Returns the first and the last index (exclusive) of slices, for each axis."""
    return tuple(s.indices(size)[:2] for s, size in zip(index, shape, strict=True))


def _bounds_of(part: Mapping[str, Any]) -> Bounds:
    pairs = zip(part["start"], part["shape"], strict=True)
    return tuple((start, start + size) for start, size in pairs)


def _overlap(bounds: Bounds, part: Mapping[str, Any]) -> Bounds | None:
    pairs = zip(bounds, _bounds_of(part), strict=True)
    overlap = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in pairs)
    return overlap if all(a < b for a, b in overlap) else None


def _within(bounds: Bounds, origin: Sequence[int]) -> tuple[slice, ...]:
    """Returns the slices of bounds in an array that begins at `origin`."""
    return tuple(slice(a - o, b - o) for (a, b), o in zip(bounds, origin, strict=True))
