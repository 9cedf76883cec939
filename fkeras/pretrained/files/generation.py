"""How the files of a model say that it generates: end tokens and sampling settings."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from fkeras.authoring.engine import describe_value
from fkeras.engine import FrozenDict
from fkeras.host.containers.errors import FileError
from fkeras.host.containers.limits import Limits
from fkeras.pretrained.files.folder import read_json
from fkeras.pretrained.tables.inert_keys import NEUTRAL
from fkeras.pretrained.texts.tokenizer import Tokenizer
from fkeras.pretrained.texts.tokenizer_files import GENERATION

_END = "eos_token_id"


class Generation(NamedTuple):
    """The end tokens of a model, and its sampling settings.

    Attributes:
        end_ids: the ids of the end tokens: `eos_token_id` of `generation_config.json`, or else the ids that
            `config.json` and the tokenizer have; empty if no file has an end token.
        settings: the settings of `generation_config.json`, such as "temperature", for
            `fk.samplers.configured`; without this file, those of `config.json`.

    Example:
        >>> import jax, pathlib, tempfile, fkeras as fk
        >>> config = fk.pretrained.LlamaConfig(100, 32, 48, 2, 4)
        >>> model = fk.pretrained.build(config).build(jax.random.key(0))
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> fk.pretrained.save(folder, model, {}, config)
        >>> _ = (folder / "generation_config.json").write_text('{"eos_token_id": [2, 7], "top_p": 0.9}')
        >>> fk.pretrained.load(folder).generation.end_ids
        (2, 7)
    """

    end_ids: tuple[int, ...] = ()
    settings: Mapping[str, Any] = FrozenDict({})


def read_generation(
    folder: str, config: Mapping[str, Any], tokenizer: Tokenizer | None, limits: Limits
) -> Generation:
    """Returns the settings of a folder.

    Args:
        config: the parsed `config.json`.

    Raises:
        FileError: for a file that is no JSON object, and for other values than ids as end tokens.
    """
    path = os.path.join(folder, GENERATION)
    settings = {}
    if os.path.isfile(path):
        settings = read_json(path, limits)
    else:
        names = (
            *NEUTRAL["options of generation"],
            *NEUTRAL["token ids of generation and of padding"],
        )
        settings = {name: config[name] for name in names if name in config}
    ends = _ids(settings, path)
    if not os.path.isfile(path) or not ends:
        text = config.get("text_config")
        nested = _ids(text, folder) if isinstance(text, Mapping) else ()
        ends = tuple(dict.fromkeys((*_ids(config, folder), *nested, *_named(tokenizer, "eos_id"))))
    return Generation(ends, FrozenDict(settings))


def generation_of_gguf(tokenizer: Tokenizer | None) -> Generation:
    """Returns the end tokens of a GGUF file, which has no sampling settings."""
    return Generation(_named(tokenizer, "end_ids"))


def _named(tokenizer: Tokenizer | None, name: str) -> tuple[int, ...]:
    """Returns the end tokens of a tokenizer; none without the package tokenizers, which finds the ids."""
    ids = None
    with contextlib.suppress(ImportError):
        ids = getattr(tokenizer, name, None)
    return () if ids is None else ids if isinstance(ids, tuple) else (ids,)


def _ids(settings: Mapping[str, Any], file: str) -> tuple[int, ...]:
    value = settings.get(_END)
    ids = value if isinstance(value, list) else [] if value is None else [value]
    # -1 stands for no token in a few old folders
    ids = [i for i in ids if i != -1]
    if any(not isinstance(i, int) or isinstance(i, bool) or not 0 <= i < 1 << 31 for i in ids):
        raise FileError(
            f"expected ids as {_END}, received {describe_value(value)}. Correct the file.",
            file=file,
        )
    return tuple(ids)
