"""Opens folders and GGUF files: finds the family, and reads the configuration and the list of tensors."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from jax.typing import DTypeLike

from fkeras.host.containers.errors import FileError, reading
from fkeras.host.containers.limits import Limits
from fkeras.host.containers.stored import Stored
from fkeras.pretrained.families.table import family_of, family_of_gguf
from fkeras.pretrained.files.float8 import dequantized
from fkeras.pretrained.files.folder import CONFIG, read_beside, read_folder, with_modules
from fkeras.pretrained.files.generation import Generation, generation_of_gguf, read_generation
from fkeras.pretrained.files.gguf import is_gguf, read_gguf
from fkeras.pretrained.files.gguf_keys import ReadKeys
from fkeras.pretrained.files.text_part import with_part
from fkeras.pretrained.tables.config import Config, reject_keys, without
from fkeras.pretrained.tables.family import Family
from fkeras.pretrained.tables.layout import Layout
from fkeras.pretrained.tables.names import Row
from fkeras.pretrained.tables.sentence_files import modules_of, sentence_steps
from fkeras.pretrained.texts.tokenizer import Tokenizer


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
        layout: layout of the files; None for GGUF, a part and quantized files, which `save` writes as a new folder.
        ignored: patterns of the names of unused tensors.
        tokenizer: the tokenizer, or None.
        generation: end tokens and sampling settings.
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
    generation: Generation


def open_source(
    path: str,
    limits: Limits,
    ignore_keys: Collection[str] = (),
    part: str | None = None,
    dtype: DTypeLike | None = None,
) -> Source:
    """Opens a folder, a safetensors file in a folder, or a GGUF file.

    Args:
        ignore_keys: keys of the configuration to skip.
        part: "text" for the language model of a folder with images.
        dtype: dtype of the tensors that a folder holds as codes with scales; None as in `dequantized`.

    Raises:
        FileNotFoundError: for a missing folder or file.
        FileError: for a damaged file, an unknown architecture or an unknown key.
    """
    if not os.path.exists(path):
        raise FileNotFoundError(
            f"{path}: expected a folder, a safetensors file or a GGUF file, found nothing at this path. "
            "Nothing is downloaded: pass the folder that huggingface_hub.snapshot_download(name) returns."
        )
    ignore_keys = (ignore_keys,) if isinstance(ignore_keys, str) else ignore_keys
    if not is_gguf(path):
        return _open_folder(path, limits, ignore_keys, part, dtype)
    if part is not None:
        raise FileError(
            f"expected no part, received {part!r}: a GGUF file has no parts.", file=path
        )
    return _open_gguf(path, limits, ignore_keys)


def _open_folder(
    path: str,
    limits: Limits,
    ignore_keys: Collection[str],
    part: str | None,
    dtype: DTypeLike | None,
) -> Source:
    whole = read_folder(path, limits)
    with reading(whole.file, CONFIG):
        stored = with_part(whole, part)
        family = family_of(stored.mapping)
        quantization = without(whole.mapping, ignore_keys).get("quantization_config")
        checkpoint = dequantized(stored, quantization, dtype)
        is_dequantized = checkpoint is not stored
        beside = read_beside(checkpoint.file, family.files, limits)
        modules = [module for module in modules_of(beside) if module.folder]
        beside |= read_beside(checkpoint.file, [module.file for module in modules], limits)
        folders = [step.folder for step in sentence_steps(beside) if step is not None]
        config: Config = family.config.read(checkpoint.mapping, beside, ignore_keys)
    names = family.names
    if family.unpacked is not None and any(".experts.0." in name for name in checkpoint.tensors):
        names = family.unpacked
    checkpoint = with_modules(checkpoint, folders, limits)
    tokenizer = Tokenizer.read(checkpoint.file, limits=limits)
    return Source(
        checkpoint.file,
        CONFIG,
        family,
        config,
        checkpoint.tensors,
        names,
        family.adapted,
        # a part, and floats in the place of codes, are written as a folder of their own
        None if part is not None or is_dequantized else checkpoint.layout,
        (*family.ignored, *family.unused(config)),
        tokenizer,
        read_generation(checkpoint.file, whole.mapping, tokenizer, limits),
    )


def _open_gguf(path: str, limits: Limits, ignore_keys: Collection[str]) -> Source:
    content = read_gguf(path, limits)
    member = "keys and values"
    with reading(path, member):
        keys = ReadKeys({k: v for k, v in content.metadata.items() if k not in ignore_keys})
        family = family_of_gguf(keys)
        table = family.gguf
        assert table is not None
        mapping = table.mapping(keys, content.tensors)
        width = content.tensors["token_embd.weight"].shape[1]
        head = mapping.get("head_dim") or width // mapping["num_attention_heads"]
        sizes = {"vocab_size": mapping["vocab_size"], "attention.value_length": head}
        reject_keys("GGUF", keys.unknown(keys["general.architecture"], sizes), "the file")
        classes = family.classes[mapping["model_type"]]
        config = family.config.read({"architectures": list(classes[:1]), **mapping})
    tokenizer = Tokenizer.from_gguf(content.metadata)
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
        tokenizer,
        generation_of_gguf(tokenizer),
    )
