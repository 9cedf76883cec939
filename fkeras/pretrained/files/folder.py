"""Folders of checkpoints: `config.json`, and safetensors files with or without an index of shards."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fkeras.engine import FrozenDict
from fkeras.host.containers.errors import FileError
from fkeras.host.containers.file_type import LENGTH, describe, open_regular
from fkeras.host.containers.limits import Limits
from fkeras.host.containers.safetensors import Table, is_safetensors, read_table
from fkeras.host.containers.stored import Stored
from fkeras.host.containers.strict_json import check, field, parse
from fkeras.pretrained.tables.layout import FileLayout, Layout

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
_POINTER = b"version https://git-lfs"
# a plain file name: no separator, drive or NUL, so that an index cannot name files elsewhere
_SHARD = re.compile(r"[^/\\:\0]{1,200}\.safetensors")


class Checkpoint(NamedTuple):
    """The content of a folder or file, with tensors that are not read yet.

    Attributes:
        file: path of the folder or file, for messages.
        mapping: the parsed `config.json`.
        tensors: the tensors by their names in the file.
        layout: the files of the tensors.
    """

    file: str
    mapping: Mapping[str, Any]
    tensors: Mapping[str, Stored]
    layout: Layout


def read_folder(folder: str, limits: Limits) -> Checkpoint:
    """Opens a folder, or a safetensors file beside its `config.json`.

    Raises:
        FileNotFoundError: for a missing file.
        FileError: for a damaged file.
    """
    names = [WEIGHTS, INDEX]
    if not os.path.isdir(folder):
        folder, name = _parts(folder)
        names = [name]
    _check_config(folder)
    mapping = read_json(os.path.join(folder, CONFIG), limits)
    name = next((n for n in names if os.path.exists(os.path.join(folder, n))), None)
    if name is None:
        raise FileNotFoundError(
            f"{folder}: expected {' or '.join(names)}, which the folder lacks. Download the weights as "
            "safetensors; pickles (pytorch_model.bin) are never opened."
        )
    shards: Mapping[str, list[str] | None] = {name: None}
    index = None
    if name.endswith(".json"):
        text = read_json(os.path.join(folder, name), limits)
        shards = _shards(text, os.path.join(folder, name), limits)
        index = FrozenDict({key: value for key, value in text.items() if key != "weight_map"})
    tensors: dict[str, Stored] = {}
    files = []
    for shard, listed in shards.items():
        path = os.path.join(folder, shard)
        if not os.path.exists(path):
            raise FileError(
                f"expected the file {shard!r} that the index lists, received a folder without it. "
                "Download the missing file.",
                file=os.path.join(folder, name),
            )
        table = _table(path, limits)
        if listed is not None and table.arrays.keys() != set(listed):
            wrong = next(iter(table.arrays.keys() ^ set(listed)))
            raise FileError(
                f"expected the tensors that the index lists, received a file that differs in "
                f"{wrong[:80]!r}. Download {shard} and the index again.",
                file=path,
            )
        tensors.update(table.arrays)
        dtypes = {key: table.dtypes[key] for key in table.arrays}
        files.append(FileLayout(shard, FrozenDict(dtypes), FrozenDict(table.metadata)))
    return Checkpoint(folder, mapping, tensors, Layout(tuple(files), index))


def _table(path: str, limits: Limits) -> Table:
    with open_regular(path) as file:
        if file.read(len(_POINTER)) == _POINTER:
            raise FileError(
                "expected the weights, received a pointer of git-lfs. Run `git lfs pull` in the folder.",
                file=path,
            )
    return read_table(path, limits)


def with_modules(checkpoint: Checkpoint, folders: Sequence[str], limits: Limits) -> Checkpoint:
    """Returns a checkpoint with the tensors in subfolders, under names such as "2_Dense/linear.weight".

    Raises:
        FileNotFoundError: for a subfolder without safetensors.
        FileError: for a damaged file.
    """
    tensors, files = dict(checkpoint.tensors), list(checkpoint.layout.files)
    for folder in folders:
        path = os.path.join(checkpoint.file, folder, WEIGHTS)
        if not os.path.exists(path):
            raise FileNotFoundError(
                f"{checkpoint.file}: expected {folder}/{WEIGHTS}, which modules.json needs and the folder "
                "lacks. Download the weights as safetensors; pickles (pytorch_model.bin) are never opened."
            )
        table = _table(path, limits)
        names = {key: f"{folder}/{key}" for key in table.arrays}
        tensors |= {names[key]: stored for key, stored in table.arrays.items()}
        dtypes = {name: table.dtypes[key] for key, name in names.items()}
        metadata = FrozenDict(table.metadata)
        files.append(FileLayout(f"{folder}/{WEIGHTS}", FrozenDict(dtypes), metadata))
    layout = Layout(tuple(files), checkpoint.layout.index)
    return checkpoint._replace(tensors=tensors, layout=layout)


def _check_config(folder: str) -> None:
    """Raises an error for a folder without `config.json`."""
    if os.path.exists(os.path.join(folder, CONFIG)):
        return
    if os.path.exists(os.path.join(folder, "adapter_config.json")):
        raise FileNotFoundError(
            f"{folder}: expected a folder with {CONFIG}, received an adapter of PEFT. Load the model that the "
            "adapter changes, then write fk.pretrained.load_adapter(folder, model, config)."
        )
    raise FileNotFoundError(
        f"{folder}: expected a folder with {CONFIG} and {WEIGHTS}, or shards with {INDEX}; found no {CONFIG}. "
        "Pass the folder that huggingface_hub.snapshot_download(name) returns."
    )


def _parts(path: str) -> tuple[str, str]:
    """Returns folder and name of a file of tensors, or of an index of such files."""
    folder, name = os.path.split(path)
    with open_regular(path) as file:
        start, size = file.read(LENGTH), os.fstat(file.fileno()).st_size
    if not is_safetensors(start, size) and name != INDEX:
        raise FileError(
            f"expected a folder, a safetensors file or a GGUF file, received {describe(start, size)}.",
            file=path,
        )
    return folder, name


def read_beside(folder: str, names: Sequence[str], limits: Limits) -> dict[str, Any]:
    """Returns the JSON of those files that a folder has, by name."""
    paths = {name: os.path.join(folder, *name.split("/")) for name in names}
    existing = {name: path for name, path in paths.items() if os.path.exists(path)}
    return {name: read_json(path, limits, (dict, list)) for name, path in existing.items()}


def read_json(path: str, limits: Limits, kind: type | tuple[type, ...] = dict) -> Any:
    """Returns the JSON object of a file.

    Raises:
        FileNotFoundError: for a missing file.
        FileError: for text that is no JSON of this kind, or beyond the limits.
    """
    with open_regular(path) as file:
        # one byte more than the limit: the parser then reports the excess
        text = file.read(min(os.fstat(file.fileno()).st_size, limits.config_bytes + 1))
    return check(parse(text, path, None, limits), kind, "the text", file=path)


def _shards(index: Mapping[str, Any], path: str, limits: Limits) -> dict[str, list[str]]:
    """Returns the tensors of each file of an index."""
    shards: dict[str, list[str]] = {}
    for tensor, name in field(index, "weight_map", dict, file=path).items():
        check(name, str, f"the file of {tensor[:80]!r}", file=path)
        if not _SHARD.fullmatch(name):
            raise FileError(
                "expected names of files in the same folder, such as "
                f"'model-00001-of-00002.safetensors', received {name[:80]!r}.",
                file=path,
                member="weight_map",
            )
        shards.setdefault(name, []).append(tensor)
    if not 0 < len(shards) <= limits.members:
        raise FileError(
            f"expected 1 to {limits.members} files, received {len(shards)}.",
            file=path,
            member="weight_map",
        )
    return shards
