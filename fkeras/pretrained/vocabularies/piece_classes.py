"""Classes of tokenizers with a vocabulary in a model of sentencepiece."""

from __future__ import annotations

import base64
from typing import Any

from fkeras.host.containers.errors import FileError
from fkeras.host.containers.strict_json import field
from fkeras.pretrained.vocabularies.sentencepiece_file import CONTROL, UNKNOWN, SentencePieces
from fkeras.pretrained.vocabularies.tokenizer_parts import (
    ENDS,
    SPACE,
    metaspace,
    piece_bpe,
    piece_decoder,
    replace,
    sequence,
)
from fkeras.pretrained.vocabularies.vocabulary_folder import CONFIG, VocabularyFolder

# SigLIP removes the punctuation of ASCII
_PUNCTUATION = r"[!-/:-@\[-`{-~]"


def _expected(folder: VocabularyFolder, algorithm: str) -> SentencePieces:
    pieces = folder.pieces
    if pieces.algorithm != algorithm:
        raise FileError(
            f"expected a model of sentencepiece's {algorithm} for a {folder.name}, received "
            f"{pieces.algorithm}. Correct tokenizer_class in {CONFIG}.",
            member=folder.source,
        )
    return pieces


def _piece_bpe(folder: VocabularyFolder) -> dict[str, Any]:
    pieces = _expected(folder, "bpe")
    vocabulary = _unique(pieces.tokens, folder)
    unknown = _unknown(pieces, folder)
    return piece_bpe(
        vocabulary, pieces.scores, pieces.types, pieces.tokens[unknown], member=folder.source
    )


def _unique(tokens: list[str], folder: VocabularyFolder) -> dict[str, int]:
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        twice = next(t for i, t in enumerate(tokens) if vocabulary[t] != i)
        raise FileError(
            f"expected each piece once, received {twice[:80]!r} twice. The file is damaged.",
            member=folder.source,
        )
    return vocabulary


def _unknown(pieces: SentencePieces, folder: VocabularyFolder) -> int:
    if pieces.types.count(UNKNOWN) != 1:
        raise FileError(
            f"expected one piece for unknown characters, received {pieces.types.count(UNKNOWN)}. The "
            "file is damaged.",
            member=folder.source,
        )
    return pieces.types.index(UNKNOWN)


def sentencepiece(folder: VocabularyFolder) -> dict[str, Any]:
    """Returns the tokenizer of a model of sentencepiece that reads texts as sentencepiece does."""
    prefix = folder.pieces.prefix
    if prefix and not folder.flag("legacy", True):
        return llama(folder)
    trims = [replace(r"\A +| +\z", "", is_regex=True), replace(" {2,}", " ", is_regex=True)]
    steps = [
        *_charsmap(folder),
        *trims * folder.pieces.trims,
        *[{"type": "Prepend", "prepend": SPACE}] * prefix,
        replace(" ", SPACE),
    ]
    return {
        "normalizer": sequence("normalizers", steps),
        "around": folder.ends(bos=True),
        "decoder": piece_decoder(prefix=prefix),
        "model": _piece_bpe(folder),
    }


def llama(folder: VocabularyFolder) -> dict[str, Any]:
    """Returns the tokenizer of the class `LlamaTokenizer`.

    A text that begins with a space gets no second space, in contrast to sentencepiece.
    """
    prefix = folder.flag("add_prefix_space", folder.pieces.prefix)
    scheme = ("always" if folder.flag("legacy", False) else "first") if prefix else "never"
    return {
        "pre_tokenizer": metaspace(scheme, splits=False),
        "around": folder.ends(bos=True),
        "decoder": piece_decoder(prefix=prefix),
        "model": _piece_bpe(folder),
    }


def gemma(folder: VocabularyFolder) -> dict[str, Any]:
    return {
        "normalizer": replace(" ", SPACE),
        "around": folder.ends(bos=True),
        "decoder": piece_decoder(prefix=False),
        "model": _piece_bpe(folder),
    }


def _charsmap(folder: VocabularyFolder) -> list[dict[str, Any]]:
    table = base64.b64encode(folder.pieces.charsmap).decode("ascii")
    return [{"type": "Precompiled", "precompiled_charsmap": table}] if table else []


def _unigram(
    folder: VocabularyFolder, tokens: list[str], scores: list[float], unknown: int
) -> dict[str, Any]:
    """Returns the parts of a unigram model, with the replacements of the file."""
    _unique(tokens, folder)
    spaces = metaspace("always", splits=True)
    return {
        "normalizer": sequence("normalizers", _charsmap(folder)),
        "pre_tokenizer": sequence("pretokenizers", [{"type": "WhitespaceSplit"}, spaces]),
        "decoder": spaces,
        "model": {
            "type": "Unigram",
            "unk_id": unknown,
            "byte_fallback": folder.pieces.byte_fallback,
            "vocab": [list(pair) for pair in zip(tokens, scores, strict=True)],
        },
    }


def t5(folder: VocabularyFolder) -> dict[str, Any]:
    """Returns the tokenizer of T5: the ids of the masked spans follow the pieces, in falling order."""
    pieces = _expected(folder, "unigram")
    count = field(folder.config, "extra_ids", int, default=100, member=CONFIG)
    if not 0 <= count <= len(pieces.tokens) + 1000:
        raise FileError(
            f"expected at most {len(pieces.tokens) + 1000} extra_ids, received {count}.",
            member=CONFIG,
        )
    further = [f"<extra_id_{i}>" for i in reversed(range(count))]
    scores = [*pieces.scores, *[0.0] * count]
    return {
        **_unigram(folder, [*pieces.tokens, *further], scores, _unknown(pieces, folder)),
        "around": folder.around("", "eos"),
        "special": further,
    }


def xlm_roberta(folder: VocabularyFolder) -> dict[str, Any]:
    """Returns the tokenizer of XLM-RoBERTa, whose first four ids are those of fairseq."""
    pieces = _expected(folder, "unigram")
    if pieces.types[:3] != [UNKNOWN, CONTROL, CONTROL]:
        raise FileError(
            f"expected the pieces '<unk>', '<s>' and '</s>' first, received {pieces.tokens[:3]}. The "
            "file belongs to another tokenizer.",
            member=folder.source,
        )
    first = [folder.token(name) for name in ("bos", "pad", "eos", "unk")]
    mask = folder.token("mask")
    scores = [*[0.0] * 4, *pieces.scores[3:], 0.0]
    return {
        **_unigram(folder, [*first, *pieces.tokens[3:], mask], scores, 3),
        "around": folder.around("bos", "eos", doubled=True),
    }


def siglip(folder: VocabularyFolder) -> dict[str, Any]:
    """Returns the tokenizer of SigLIP, which removes the punctuation of ASCII."""
    pieces = _expected(folder, "unigram")
    content = _unigram(folder, pieces.tokens, pieces.scores, _unknown(pieces, folder))
    steps = [
        replace(SPACE, " "),
        {"type": "Prepend", "prepend": SPACE},
        *[{"type": "Lowercase"}] * folder.flag("do_lower_case", True),
        replace(_PUNCTUATION, "", is_regex=True),
        replace(r"\s+", " ", is_regex=True),
        {"type": "Strip", "strip_left": True, "strip_right": True},
        content["normalizer"],
        replace(" {2,}", " ", is_regex=True),
        replace(" ", SPACE),
        replace(rf"{SPACE}+\z", "", is_regex=True),
    ]
    return {
        **content,
        "normalizer": sequence("normalizers", filter(None, steps)),
        "pre_tokenizer": None,
        "around": folder.around("", "eos"),
        "decoder": sequence(
            "decoders", [replace(SPACE, " "), {"type": "Fuse"}, replace(ENDS, "", is_regex=True)]
        ),
    }
