"""Encoding without control tokens that characters of messages would become."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from fkeras.pretrained.texts.fast_tokenizer import guarded
from fkeras.pretrained.texts.traced_text import highest, origins, plain


def encodings_without(
    fast: Any,
    text: str,
    control: Mapping[int, frozenset[int]],
    unknown: Callable[[], int | None],
) -> list[tuple[int, Any]]:
    """Returns the encodings of the parts of a text with their positions.

    The text is one part, unless characters of messages became control tokens, which are then split after
    their first character. The ids show this after normalization, whatever a template did to the characters.

    Args:
        fast: the tokenizer of the package `tokenizers`.
        control: for each origin the ids that texts of this origin must not become.
        unknown: returns the id of characters that the vocabulary lacks.

    Raises:
        ValueError: for a control token of one character.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"Tokenizer.encode: expected Unicode, received half a character (a surrogate) at "
            f"{error.start}. Read the text with errors='replace'."
        ) from None
    encodings, pending = [], [(0, len(text))]
    while pending:
        start, end = pending.pop()
        part = text[start:end]
        with guarded("Tokenizer.encode"):
            encoding = fast.encode(plain(part), add_special_tokens=False)
        bounds = [0, *_cuts(fast, part, encoding, control, unknown), len(part)]
        if len(bounds) == 2:
            encodings.append((start, encoding))
        else:
            pieces = [(start + a, start + b) for a, b in itertools.pairwise(bounds)]
            pending += reversed(pieces)
    return encodings


def _cuts(
    fast: Any,
    text: str,
    encoding: Any,
    control: Mapping[int, frozenset[int]],
    unknown: Callable[[], int | None],
) -> list[int]:
    """Returns the positions at which to split the control tokens that messages contain."""
    cuts = []
    origin_of, found = origins(text), highest(text)
    forbidden = frozenset().union(*(ids for origin, ids in control.items() if origin <= found))
    for number, (begin, end) in zip(encoding.ids, encoding.offsets, strict=True):
        if number not in forbidden:
            continue
        # a token may absorb the spaces around it
        token = plain(text)[begin:end]
        begin, end = begin + len(token) - len(token.lstrip()), begin + len(token.rstrip())
        used = set(origin_of[begin:end])
        if not any(number in control[origin] for origin in used if origin in control):
            continue
        content = fast.id_to_token(number)
        if number == unknown() and not _is_same(fast, token, content):
            continue
        if end - begin == 1:
            raise ValueError(
                f"Tokenizer: the text contains the special token {content!r}, which is one character "
                "and cannot be split. Remove the character from the text."
            )
        cuts.append(begin + 1)
    return cuts


def _is_same(fast: Any, text: str, token: str) -> bool:
    if text.strip() == token.strip():
        return True
    normalizer = fast.normalizer
    return normalizer is not None and normalizer.normalize_str(text) == normalizer.normalize_str(
        token
    )
