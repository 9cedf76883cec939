"""Added tokens of older checkpoints: tokens that are found in a text before the text is split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fkeras.authoring.engine import describe_value
from fkeras.host.containers.errors import FileError
from fkeras.host.containers.strict_json import field
from fkeras.pretrained.vocabularies.sentencepiece_file import CONTROL, USER
from fkeras.pretrained.vocabularies.tokenizer_parts import added_token
from fkeras.pretrained.vocabularies.vocabulary_folder import (
    ADDED,
    CONFIG,
    MODELS,
    VocabularyFolder,
    content_of,
)

_FLAGS = ("single_word", "lstrip", "rstrip", "normalized")


def added_tokens(
    folder: VocabularyFolder, ids: Mapping[str, int], special: Sequence[str]
) -> list[dict[str, Any]]:
    """Returns the added tokens in the order of their ids.

    The tokens are those of "added_tokens_decoder" or `added_tokens.json`, the control pieces of sentencepiece,
    and all special tokens.

    Args:
        ids: ids of the vocabulary by tokens.
        special: special tokens of the class that have no names.

    Raises:
        FileError: for a token with two ids, for ids that do not follow the vocabulary, and for a usual
            special token that is missing.
    """
    ids, added, slow = dict(ids), {}, folder.kind.slow
    further = [
        token
        for key in ("additional_special_tokens", "extra_special_tokens")
        for token in _list_of(folder.config.get(key), key)
    ]
    named = [folder.config.get(name, token) for name, token in folder.special.items()]
    tokens = (*named, *further, *special)
    specials = {text: t for t in tokens if (text := content_of(t, "a special token"))}

    def add(content: str, flags: Mapping[str, bool], declared: int | None, member: str) -> None:
        if not content:
            raise FileError("expected a token, received an empty text.", member=member)
        place = "" if content in ids else " after the vocabulary"
        number = ids.setdefault(content, len(ids))
        if declared not in (None, number):
            raise FileError(
                f"expected the id {number}{place} for the token {content[:80]!r}, as in {folder.source}, "
                f"received {declared}. The files belong to different tokenizers.",
                member=member,
            )
        flags = {"special": content in specials, **flags}
        added[content] = added_token(content, number, **flags)

    decoder = field(folder.config, "added_tokens_decoder", dict, default=None, member=CONFIG)
    if decoder is not None:
        for number, token in sorted(_by_id(decoder).items()):
            content = content_of(token, f"added_tokens_decoder[{number}]") or ""
            flags = _flags_of(token)
            if content in specials:
                flags["special"] = True
            add(content, flags, number, CONFIG)
    elif ADDED in folder.originals:
        declared = folder.ids(ADDED)
        for content, number in sorted(declared.items(), key=lambda item: item[1]):
            add(content, {"normalized": content not in specials}, number, ADDED)
    if folder.kind.files == MODELS and not slow:
        for content, kind in zip(folder.pieces.tokens, folder.pieces.types, strict=True):
            if kind in (CONTROL, USER) and content and content not in added and content in ids:
                flags = {"special": kind == CONTROL or content in specials}
                add(content, flags, None, folder.source)
    for name, content in folder.special.items():
        if content not in ids and name not in folder.config:
            raise FileError(
                f"expected the {name} {content!r} among the tokens, received {len(ids)} tokens without "
                f"this token. Name the token in {CONFIG}, or write null for no token.",
                member=folder.source,
            )
    usual = {"lstrip": slow, "rstrip": slow}
    for content, token in specials.items():
        if content not in added:
            add(content, {**usual, **_flags_of(token), "special": True}, None, CONFIG)
    return sorted(added.values(), key=lambda token: token["id"])


def _flags_of(token: Any) -> dict[str, bool]:
    flags = token if isinstance(token, Mapping) else {}
    names = [name for name in (*_FLAGS, "special") if name in flags]
    return {name: field(flags, name, bool, member=CONFIG) for name in names}


def _list_of(value: Any, key: str) -> list[Any]:
    tokens = list(value.values()) if isinstance(value, Mapping) else value
    if tokens is not None and not isinstance(tokens, list):
        raise FileError(
            f"expected {key} as a list of tokens, received {describe_value(value)}.", member=CONFIG
        )
    return tokens or []


def _by_id(decoder: Mapping[str, Any]) -> dict[int, Any]:
    for number in decoder:
        if not (number.isascii() and number.isdigit() and len(number) < 10):
            raise FileError(
                f"expected ids as keys of added_tokens_decoder, received {number[:80]!r}.",
                member=CONFIG,
            )
    return {int(number): token for number, token in decoder.items()}
