"""Parts of `tokenizer.json` that several file formats share: steps, models and templates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fkeras.host.containers.errors import FileError
from fkeras.pretrained.vocabularies.sentencepiece_file import BYTE, NORMAL, USER

_LONGEST = 256  # resource limit: the characters of a token, whose splits are all tried

SPACE = "▁"  # sentencepiece writes a space as this character
ENDS = r"\A\s+|\s+\z"  # matches the white space at both ends of a text


def sequence(kind: str, steps: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Returns the steps as one step; None for no steps.

    Args:
        kind: name of the list: "normalizers", "pretokenizers" or "decoders".
    """
    listed = list(steps)
    if len(listed) < 2:
        return dict(listed[0]) if listed else None
    return {"type": "Sequence", kind: listed}


def replace(pattern: str, content: str, *, is_regex: bool = False) -> dict[str, Any]:
    """Returns the step that replaces a text, or the matches of a regular expression."""
    key = "Regex" if is_regex else "String"
    return {"type": "Replace", "pattern": {key: pattern}, "content": content}


def split(pattern: str, behavior: str = "Isolated", *, invert: bool = False) -> dict[str, Any]:
    """Returns the step that splits a text at the matches of a regular expression."""
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def byte_level(*, prefix: bool = False, splits: bool = False) -> dict[str, Any]:
    """Returns the step from bytes to characters, which is also a decoder.

    Args:
        prefix: whether texts get a space at the start.
        splits: whether the step splits texts as GPT-2 does.
    """
    return {
        "type": "ByteLevel",
        "add_prefix_space": prefix,
        "trim_offsets": False,
        "use_regex": splits,
    }


def metaspace(scheme: str, *, splits: bool) -> dict[str, Any]:
    """Returns the step that writes spaces as `SPACE`, which is also a decoder.

    Args:
        scheme: which texts get a space at the start: "always", "first" or "never".
        splits: whether the step splits texts at spaces.
    """
    return {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": splits}


def piece_decoder(*, prefix: bool) -> dict[str, Any] | None:
    """Returns the decoder of sentencepiece's BPE.

    Args:
        prefix: whether texts got a space at the start, which the decoder removes.
    """
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    steps = [replace(SPACE, " "), {"type": "ByteFallback"}, {"type": "Fuse"}]
    return sequence("decoders", steps + [strip] * prefix)


def piece_bpe(
    vocabulary: Mapping[str, int],
    scores: Sequence[float],
    types: Sequence[int],
    unknown: str,
    **place: str,
) -> dict[str, Any]:
    """Returns sentencepiece's BPE, whose merges follow from the scores of the tokens.

    Args:
        vocabulary: ids by tokens.
        scores: scores by ids.
        types: types of the tokens by ids, as in sentencepiece models.
        unknown: the token of unknown characters.
        place: `member` or `key` of the tokens in error messages.

    Raises:
        FileError: for a token that is too long.
    """
    pieces = {token for token, number in vocabulary.items() if types[number] in (NORMAL, USER)}
    if max(map(len, pieces), default=0) > _LONGEST:
        raise FileError(
            f"expected tokens of at most {_LONGEST} characters, received a longer token. The file is "
            "damaged or crafted.",
            **place,
        )
    # two tokens merge if the result is a token; merges with the best score come first
    merges = [
        (-scores[vocabulary[token]], -split, split - len(token), token[:split], token[split:])
        for token in pieces
        for split in range(1, len(token))
        if token[:split] in pieces and token[split:] in pieces
    ]
    return {
        "type": "BPE",
        "vocab": dict(vocabulary),
        "unk_token": unknown,
        "fuse_unk": True,
        "byte_fallback": BYTE in types,
        "merges": [list(merge[3:]) for merge in sorted(merges)],
    }


def template(
    before: Sequence[str], after: Sequence[str], between: Sequence[str], ids: Mapping[str, int]
) -> dict[str, Any]:
    """Returns the step that puts special tokens around a text, and around each of two texts.

    Args:
        before: special tokens before the first text.
        after: special tokens after each text.
        between: further special tokens before the second text.
        ids: ids of the special tokens.
    """

    def row(text: str, number: int, start: Sequence[str]) -> list[dict[str, Any]]:
        return [
            *({"SpecialToken": {"id": t, "type_id": number}} for t in start),
            {"Sequence": {"id": text, "type_id": number}},
            *({"SpecialToken": {"id": t, "type_id": number}} for t in after),
        ]

    single = row("A", 0, before)
    tokens = dict.fromkeys((*before, *after, *between))
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, *row("B", 1, between)],
        "special_tokens": {t: {"id": t, "ids": [ids[t]], "tokens": [t]} for t in tokens},
    }


def end_template(config: Mapping[str, Any], ids: Mapping[str, int]) -> dict[str, Any] | None:
    """Returns the template of the BOS and EOS tokens that a configuration adds; None without such tokens.

    Args:
        config: "bos_token", "eos_token", "add_bos_token" and "add_eos_token", of which each may be missing.
        ids: ids of the special tokens.
    """

    def tokens(name: str) -> list[str]:
        token = config.get(f"{name}_token")
        return [token] if token is not None and config.get(f"add_{name}_token") else []

    bos, eos = tokens("bos"), tokens("eos")
    return template(bos, eos, bos, ids) if bos or eos else None


def added_token(content: str, number: int, *, special: bool, **flags: bool) -> dict[str, Any]:
    """Returns the entry of a token that is found in a text before the text is split.

    Args:
        special: whether the token is a control token, which `decode` leaves out.
        flags: "single_word", "lstrip", "rstrip" and "normalized", which are false by default.
    """
    usual = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": number, "content": content, "special": special, **usual, **flags}
