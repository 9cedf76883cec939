"""Classes of tokenizers with a vocabulary in text files: WordPiece and byte-level BPE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fkeras.host.containers.errors import FileError
from fkeras.host.containers.strict_json import field
from fkeras.pretrained.vocabularies.gguf_tokenizer import QWEN2
from fkeras.pretrained.vocabularies.tokenizer_parts import (
    byte_level,
    replace,
    sequence,
    split,
    template,
)
from fkeras.pretrained.vocabularies.vocabulary_folder import (
    ADDED,
    CONFIG,
    MERGES,
    TOKENS,
    WORDS,
    VocabularyFolder,
)

_CLIP = (
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
)


def wordpiece(folder: VocabularyFolder) -> dict[str, Any]:
    vocabulary: dict[str, int] = {}
    for number, line in enumerate(folder.lines(WORDS)):
        token = line.rstrip()
        if vocabulary.setdefault(token, number) != number:
            raise FileError(
                f"expected each token once, received {token[:80]!r} in the lines "
                f"{vocabulary[token] + 1} and {number + 1}. The file is damaged.",
                member=WORDS,
            )
    unknown = folder.special.get("unk_token")
    if unknown not in vocabulary:
        raise FileError(
            f"expected the unknown token {unknown!r} among the tokens, received {len(vocabulary)} "
            f"tokens without it. The file is damaged, or unk_token in {CONFIG} is wrong.",
            member=WORDS,
        )
    strip_accents = field(
        folder.config, "strip_accents", (bool, type(None)), default=None, member=CONFIG
    )
    return {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "strip_accents": strip_accents,
            "handle_chinese_chars": folder.flag("tokenize_chinese_chars", True),
            "lowercase": folder.flag("do_lower_case", True),
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "around": folder.around("cls", "sep"),
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": unknown,
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": vocabulary,
        },
    }


def _bpe(folder: VocabularyFolder, suffix: str = "", unknown: str | None = None) -> dict[str, Any]:
    """Returns the model BPE of `vocab.json` and `merges.txt`."""
    vocabulary = folder.ids(TOKENS)
    if sorted(vocabulary.values()) != list(range(len(vocabulary))):
        raise FileError(
            f"expected the ids 0 to {len(vocabulary) - 1}, each once, received other ids. The file is "
            "damaged.",
            member=TOKENS,
        )
    merges = []
    for number, line in enumerate(folder.lines(MERGES)):
        if number == 0 and line.startswith("#version"):
            continue
        pair = line.rstrip("\r").split(" ")
        if len(pair) != 2 or any(token not in vocabulary for token in (*pair, "".join(pair))):
            raise FileError(
                f"expected two tokens that merge to a token of {TOKENS} in line {number + 1}, "
                f"received {line[:80]!r}. The file is damaged, or belongs to another tokenizer.",
                member=MERGES,
            )
        merges.append(pair)
    return {
        "type": "BPE",
        "vocab": vocabulary,
        "merges": merges,
        "unk_token": unknown,
        "end_of_word_suffix": suffix,
        "continuing_subword_prefix": "",
    }


def gpt2(folder: VocabularyFolder) -> dict[str, Any]:
    return {
        "pre_tokenizer": byte_level(prefix=folder.flag("add_prefix_space", False), splits=True),
        "around": folder.ends(),
        "decoder": byte_level(),
        "model": _bpe(folder),
    }


def roberta(folder: VocabularyFolder) -> dict[str, Any]:
    return {**gpt2(folder), "around": folder.around("cls", "sep", doubled=True)}


def qwen2(folder: VocabularyFolder) -> dict[str, Any]:
    prefix = folder.flag("add_prefix_space", False)
    return {
        **gpt2(folder),
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": sequence("pretokenizers", [split(QWEN2), byte_level(prefix=prefix)]),
    }


def clip(folder: VocabularyFolder) -> dict[str, Any]:
    steps = [{"type": "NFC"}, replace(r"\s+", " ", is_regex=True), {"type": "Lowercase"}]
    splits = [split(_CLIP, "Removed", invert=True), byte_level(splits=True)]
    return {
        "normalizer": sequence("normalizers", steps),
        "pre_tokenizer": sequence("pretokenizers", splits),
        "around": folder.around("bos", "eos", doubled=True),
        "decoder": byte_level(),
        "model": _bpe(folder, "</w>", folder.special.get("unk_token")),
    }


def whisper(folder: VocabularyFolder) -> dict[str, Any]:
    """Returns the tokenizer of Whisper, whose texts begin with tokens of the language and of the task."""
    options = {
        name: field(folder.config, name, (str, type(None)), default=None, member=CONFIG)
        for name in ("language", "task")
    }
    before = ["startoftranscript", *filter(None, options.values())]
    if not folder.flag("predict_timestamps", False):
        before.append("notimestamps")
    end = folder.token("eos")

    def around(ids: Mapping[str, int]) -> Any:
        tokens = [f"<|{name.lower()}|>" for name in before]
        for token in (*tokens, end):
            if token not in ids:
                raise FileError(
                    f"expected the token {token[:80]!r}, received {len(ids)} tokens without it. Download "
                    f"{ADDED}; a language is a code such as 'es'.",
                    member=CONFIG if token[2:-2] in options.values() else ADDED,
                )
        return template(tokens, [end], [], ids)

    return {**gpt2(folder), "around": around}
