"""Reads the files of a tokenizer in a folder, with resource limits."""

from __future__ import annotations

import os
from typing import NamedTuple

from fkeras.host.containers.errors import FileError
from fkeras.host.containers.limits import Limits, check_limit
from fkeras.pretrained.vocabularies.conversion import tokenizer_json
from fkeras.pretrained.vocabularies.vocabulary_folder import CONFIG, SPECIAL, VOCABULARIES

MODEL = "tokenizer.json"
TEMPLATE, GENERATION = "chat_template.jinja", "generation_config.json"
FILES = (MODEL, CONFIG, SPECIAL, TEMPLATE, GENERATION)
# `normalizer.json` of Whisper compares transcriptions; no id depends on the file
ORIGINALS = (*VOCABULARIES, "normalizer.json")


class TokenizerFiles(NamedTuple):
    """The files of a tokenizer.

    Attributes:
        files: texts of the files `FILES`, with `tokenizer.json` made from the vocabulary if the folder
            lacks the file.
        originals: contents of the files `ORIGINALS` that the folder has.
        source: name of the file that describes the tokenizer.
    """

    files: dict[str, str]
    originals: dict[str, bytes]
    source: str


def read_tokenizer(folder: str, limits: Limits) -> TokenizerFiles | None:
    """Returns the files of the tokenizer in a folder; None if the folder has no vocabulary.

    Raises:
        FileError: for a damaged or contradictory file, and for a file above the limit.
    """
    originals = _read(folder, ORIGINALS, limits)
    files = {
        name: _text(data, os.path.join(folder, name))
        for name, data in _read(folder, FILES, limits).items()
    }
    if MODEL in files:
        return TokenizerFiles(files, originals, MODEL)
    architecture = _read(folder, ("config.json",), limits)
    vocabularies = {name: data for name, data in originals.items() if name in VOCABULARIES}
    try:
        made = tokenizer_json(vocabularies, files, *architecture.values(), limits=limits)
    except FileError as error:
        file = os.path.join(folder, error.member or "")
        raise FileError(error.problem, file=file, key=error.key) from error.__cause__
    return None if made is None else TokenizerFiles({**files, **made[0]}, originals, made[1])


def _read(folder: str, names: tuple[str, ...], limits: Limits) -> dict[str, bytes]:
    """Returns the contents of those files that the folder has."""
    contents = {}
    for name in names:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            with open(path, "rb") as file:
                contents[name] = file.read(limits.config_bytes + 1)
            check_limit(limits, "config_bytes", len(contents[name]), "bytes of text", file=path)
    return contents


def _text(data: bytes, path: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileError(
            f"expected UTF-8, received other bytes at {error.start}. The file is damaged.",
            file=path,
        ) from error
