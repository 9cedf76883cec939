"""Opens folders and GGUF files: finds the family, and reads the configuration and the list of tensors."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from fkeras.pretrained.families.table import family_of, family_of_gguf
from fkeras.pretrained.files.folder import CONFIG, read_beside, read_folder
from fkeras.pretrained.files.gguf import is_gguf, read_gguf
from fkeras.pretrained.tables.config import Config
from fkeras.pretrained.tables.family import Family
from fkeras.pretrained.tables.layout import Layout
from fkeras.pretrained.tables.names import Row
from fkeras.pretrained.texts.tokenizer import Tokenizer
from fkeras.saving.containers.errors import reading
from fkeras.saving.containers.limits import Limits
from fkeras.saving.weights.weight_source import Stored


class Source(NamedTuple):
    """An open folder or file.

    Attributes:
        file: path of the folder or file, for error messages.
        member: the part of the file that describes the model, for error messages.
        family: the family of the model.
        config: the configuration, before it is adapted to the tensors.
        tensors: the tensors by name.
        names: returns the table of names for the file format.
        adapted: returns the configuration adapted to the names of the tensors.
        layout: layout of the files; None for GGUF, which `save` does not write.
        ignored: patterns of the names of unused tensors.
        tokenizer: the tokenizer, or None.
    """

    file: str
    member: str
    family: Family
    config: Config
    tensors: Mapping[str, Stored]
    names: Callable[[Any], tuple[Row, ...]]
    adapted: Callable[[Any, Collection[str]], Any]
    layout: Layout | None
    ignored: tuple[str, ...]
    tokenizer: Tokenizer | None


def open_source(path: str, limits: Limits) -> Source:
    """Opens a folder, a safetensors file in a folder, or a GGUF file.

    Raises:
        FileNotFoundError: for a missing folder or file.
        FileError: for a damaged file, an unknown architecture or an unknown key.
    """
    if not os.path.exists(path):
        raise FileNotFoundError(
            f"{path}: expected a folder, a safetensors file or a GGUF file, found nothing at this path. "
            "Nothing is downloaded: pass the folder that huggingface_hub.snapshot_download(name) returns."
        )
    return _open_gguf(path, limits) if is_gguf(path) else _open_folder(path, limits)


def _open_folder(path: str, limits: Limits) -> Source:
    checkpoint = read_folder(path, limits)
    with reading(checkpoint.file, CONFIG):
        family = family_of(checkpoint.mapping)
        beside = read_beside(checkpoint.file, family.files, limits)
        config: Config = family.config.read(checkpoint.mapping, beside)
    return Source(
        checkpoint.file,
        CONFIG,
        family,
        config,
        checkpoint.tensors,
        family.names,
        family.adapted,
        checkpoint.layout,
        family.ignored,
        Tokenizer.read(checkpoint.file, limits=limits),
    )


def _open_gguf(path: str, limits: Limits) -> Source:
    content = read_gguf(path, limits)
    member = "keys and values"
    with reading(path, member):
        family = family_of_gguf(content.metadata)
        table = family.gguf
        assert table is not None
        mapping = table.mapping(content.metadata, content.tensors)
        classes = family.classes[mapping["model_type"]]
        config = family.config.read({"architectures": list(classes[:1]), **mapping})
    return Source(
        path,
        member,
        family,
        config,
        content.tensors,
        table.names,
        lambda config, tensors: config,
        None,
        table.ignored,
        Tokenizer.from_gguf(content.metadata),
    )
