"""Opens weight files: HDF5, `.keras`, shards, safetensors and `.npz`.

Arguments of the readers, documented here only:

    path: path of the file.
    limits: limits on sizes.
    skips: returns whether the weights of a name are skipped.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from fkeras.atomic_files import npz
from fkeras.engine import Layer
from fkeras.host.containers import file_type, safetensors
from fkeras.host.containers.archive import Archive, open_archive
from fkeras.host.containers.errors import FileError, reading
from fkeras.host.containers.hdf5 import Store, open_store
from fkeras.host.containers.limits import Limits, check_limit
from fkeras.host.containers.stored import Stored, unread
from fkeras.host.containers.strict_json import check, field, parse
from fkeras.saving.weights.filling import noted_groups, stored_arrays, stored_groups
from fkeras.saving.weights.old_layouts import OLD_LAYERS, path_in
from fkeras.saving.weights.vocabularies import IDF_WEIGHTS
from fkeras.saving.weights.weight_paths import Groups, Place
from fkeras.saving.weights.weight_source import Source, own_path, own_path_by_kind

_KERAS = "model.weights.h5"
# a plain file name: no separator, drive or NUL, so that a table cannot name files elsewhere
_SHARD = re.compile(r"[^/\\:\0]+_\d{5}\.weights\.h5")

Skips = Callable[[str], bool]


class Head(NamedTuple):
    """Facts about a file from which its format is recognized."""

    path: str
    start: bytes
    size: int


@contextlib.contextmanager
def open_safetensors(path: str, limits: Limits, skips: Skips) -> Iterator[Source]:
    """Opens a safetensors file, whose names are the model's own paths, or those of `.npz` files."""

    def key(place: Place) -> str:
        # the path first: a layer may have the name "weights"
        by_kind = own_path_by_kind(place)
        return by_kind if by_kind in table and own_path(place) not in table else own_path(place)

    with safetensors.open_table(path, limits) as table:
        yield Source(path, table, key)


@contextlib.contextmanager
def open_hdf5(path: str, limits: Limits, skips: Skips) -> Iterator[Source | Store]:
    """Opens an HDF5 file; yields a `Store` for the layouts of Keras 1 and 2."""
    with open_store(path, limits=limits) as store:
        # Keras 1 and 2 list the layers in an attribute, and split long lists
        is_legacy = any(n in ("layer_names", "layer_names0") for n in store.attributes(""))
        yield store if is_legacy or "model_weights" in store.groups() else _keras(store, skips)


@contextlib.contextmanager
def open_zip(path: str, limits: Limits, skips: Skips) -> Iterator[Source]:
    """Opens a zip archive: a `.keras` file or a `.npz` file."""
    with open_archive(path, limits) as archive:
        if _KERAS in archive:
            with open_store(archive.open(_KERAS), path, _KERAS, limits) as store:
                yield _keras(store, skips)
        else:
            with reading(path):
                arrays = _npz(archive, limits)
            if any(map(_has_kind, arrays)):
                yield Source(path, arrays, own_path_by_kind, label=_without_kind)
            else:
                yield Source(path, arrays, own_path)


@contextlib.contextmanager
def open_shards(path: str, limits: Limits, skips: Skips) -> Iterator[Source]:
    """Opens Keras's `weights.json` and the files that it lists."""
    with contextlib.ExitStack() as stack:
        yield _shards(path, _read_text(path, limits), limits, skips, stack)


def lists_shards(head: Head, limits: Limits) -> bool:
    """Returns whether a file is JSON with Keras's list of shards."""
    is_json = head.start.lstrip().startswith(b"{")
    return is_json and b"weight_map" in _read_text(head.path, limits)


def _read_text(path: str, limits: Limits) -> bytes:
    # one byte more than the limit: the parser then reports the excess
    with file_type.open_regular(path) as file:
        return file.read(min(os.fstat(file.fileno()).st_size, limits.config_bytes + 1))


def _keras(store: Store, skips: Skips) -> Source:
    """Returns the arrays of a store in Keras's layout, without the optimizer's arrays."""
    arrays = {path: unread(store, path) for path in stored_arrays(store) if _is_weight(path)}
    label = functools.partial(_stored_label, store)
    return Source(str(store.file), arrays, _key(store), _groups(store, skips), store.member, label)


def _is_weight(path: str) -> bool:
    # here the weights of a lookup layer are part of its configuration
    if path.endswith(IDF_WEIGHTS):
        return False
    # states of random generators are ignored: keys are arguments of calls here
    return not path.startswith("optimizer/") and "/seed_generator/" not in f"/{path}"


def _key(store: Store) -> Callable[[Place], str | None]:
    in_file = path_in(store)

    def key(place: Place) -> str | None:
        return None if place.path is None else in_file(place.path)

    return key


def _stored_label(store: Store, path: str) -> str:
    """Returns the path of an array with the layer names that the file stores: "encoder/dense/0"."""
    parts = path.split("/")
    names = []
    for number, part in enumerate(parts):
        if part in ("layers", OLD_LAYERS, "vars"):
            continue
        inner = "/".join((*parts[: number + 1], "vars"))
        is_listed = number and parts[number - 1] in ("layers", OLD_LAYERS)
        name = store.attributes(inner).get("name") if is_listed and store.has(inner) else None
        names.append(name if isinstance(name, str) else part)
    return "/".join(names)


def _groups(store: Store, skips: Skips) -> Groups:
    """Returns `stored_groups` in which skipped layers may be missing."""
    find = stored_groups(store)

    def groups(path: str, layers: Sequence[Layer]) -> Sequence[str]:
        # "kernel" is any name inside the layer: patterns such as "head" match all weights inside
        unskipped = [
            layer for layer in layers if not (layer.name and skips(f"{layer.name}/kernel"))
        ]
        if len(unskipped) == len(layers):
            return find(path, layers)
        groups_by_name = noted_groups(store, path)
        names = [layer.name for layer in layers]
        all_named = unskipped and all(layer.name in groups_by_name for layer in unskipped)
        if not all_named or len(set(names)) < len(names):
            return find(path, layers)
        # a skipped layer that the file lacks gets a group that no file has
        return [groups_by_name.get(name, f"{name} (skipped)") for name in names]

    return Groups(groups, store.has, find.noted)


def _npz(archive: Archive, limits: Limits) -> dict[str, Stored]:
    """Returns the weights and the state in a `.npz` file.

    A file in which no name begins with "weights/" or "state/" holds the arrays by the model's own paths.
    """
    names = [n for n in archive.names if n.endswith(".npy") and n != f"{npz.ABOUT}.npy"]
    names = [name for name in names if _has_kind(name)] or names
    dtypes = {}
    if f"{npz.ABOUT}.npy" in archive:
        with reading(archive.file, npz.ABOUT), archive.open(f"{npz.ABOUT}.npy") as file:
            size = archive.size(f"{npz.ABOUT}.npy")
            check_limit(limits, "config_bytes", size, "bytes of text")
            text = str(npz.read_array(file, size))
            dtypes = npz.check_about(parse(text, archive.file, npz.ABOUT, limits))
    arrays = {}
    for member in names:
        name = member.removesuffix(".npy")
        with reading(archive.file, name):
            size = archive.size(member)
            check_limit(limits, "array_bytes", size, "bytes of an array")
            # the header only: arrays are read after all shapes have been compared
            with archive.open(member) as file:
                shape, dtype, _ = npz.read_header(file, size)
        dtype = dtypes.get(name, dtype)
        read = functools.partial(_read_npz, archive, member, size, dtype)
        arrays[name] = Stored(shape, dtype, read)
    if not arrays:
        raise FileError(
            "expected a .npz file with entries such as 'dense/kernel' or 'weights/dense/kernel', received "
            f"{', '.join(archive.names[:6]) or 'none'}. Write one with fk.save_weights.",
            file=archive.file,
        )
    return arrays


def _has_kind(name: str) -> bool:
    return name.startswith(("weights/", "state/"))


def _without_kind(name: str) -> str:
    return name.partition("/")[2]


def _read_npz(archive: Archive, member: str, size: int, dtype: np.dtype) -> Any:
    with reading(archive.file, member), archive.open(member) as file:
        return npz.viewed(npz.read_array(file, size), dtype)


def _shards(
    path: str, text: bytes, limits: Limits, skips: Skips, stack: contextlib.ExitStack
) -> Source:
    """Returns the arrays of the files listed in Keras's `weights.json`, in the same folder."""
    table = parse(text, path, None, limits)
    shard_names: dict[str, None] = {}
    for group, names in field(table, "weight_map", dict, file=path).items():
        for name in names if isinstance(names, list) else [names]:
            check(name, str, f"the file of {group[:80]!r}", file=path)
            if not _SHARD.fullmatch(name):
                raise FileError(
                    f"expected names of shards in the same folder, such as "
                    f"'model_00000.weights.h5', received {name[:80]!r}. Save the weights again.",
                    file=path,
                    member="weight_map",
                )
            shard_names[name] = None  # a dictionary as an ordered set
    if not 0 < len(shard_names) <= limits.members:
        raise FileError(
            f"expected 1 to {limits.members} shards, received {len(shard_names)}.",
            file=path,
            member="weight_map",
        )
    folder = os.path.dirname(path)
    arrays: dict[str, Stored] = {}
    stores = []
    for name in shard_names:
        stores.append(stack.enter_context(open_store(os.path.join(folder, name), limits=limits)))
        for key, stored in _keras(stores[-1], skips).arrays.items():
            if key in arrays:
                raise FileError(
                    "the array is in two shards. Save the weights again.", file=path, member=key
                )
            arrays[key] = stored
    store_by_key = {key: store for store in stores for key in stored_arrays(store)}

    def label(key: str) -> str:
        return _stored_label(store_by_key[key], key)

    return Source(
        path, arrays, lambda place: place.path, _merged_groups(stores, skips), label=label
    )


def _merged_groups(stores: Sequence[Store], skips: Skips) -> Groups:
    """Returns the groups of layers in several stores, by the names in the most complete store."""

    def groups(path: str, layers: Sequence[Layer]) -> Sequence[str]:
        most_complete = max(stores, key=lambda store: len(store.groups(path)))
        return _groups(most_complete, skips)(path, layers)

    return Groups(groups, lambda path: any(store.has(path) for store in stores))
