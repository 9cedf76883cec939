"""Converts the tokenizer of a GGUF file to the tokenizer files of a Hugging Face folder.

Two types of tokenizer: "gpt2", byte-level BPE with merges, whose pre-tokenizer has a name
("tokenizer.ggml.pre"), and "llama", sentencepiece BPE, whose merges follow from the scores of the tokens.
"""

from __future__ import annotations

import json
import types
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fkeras.authoring.engine import describe_value
from fkeras.engine import suggest
from fkeras.host.containers.errors import FileError
from fkeras.pretrained.vocabularies.sentencepiece_file import CONTROL, NORMAL, UNKNOWN, USER
from fkeras.pretrained.vocabularies.tokenizer_parts import (
    SPACE,
    added_token,
    byte_level,
    end_template,
    piece_bpe,
    piece_decoder,
    replace,
    sequence,
    split,
)

_KEY = "tokenizer.ggml."

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_END = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LLAMA3 = (
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*" + _END
)
QWEN2 = _LLAMA3.replace("{1,3}", "")
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*" + _END
)
_O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTIONS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + _END
)
_DIGITS = r"\p{N}"
# patterns of the pre-tokenizer, applied one after the other
_SPLITS = types.MappingProxyType(
    {
        **dict.fromkeys(("gpt-2", "phi-2", "olmo", "jais", "mpt"), (_GPT2,)),
        **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "dbrx", "smaug-bpe"), (_LLAMA3,)),
        **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2"), (QWEN2,)),
        **dict.fromkeys(
            ("smollm", "starcoder", "refact", "command-r", "codeshell"), (_DIGITS, _GPT2)
        ),
        "tekken": (_TEKKEN,),
        **dict.fromkeys(("gpt-4o", "llama4"), (_O200K,)),
        "falcon": (r"[\p{P}$+<=>^~|`]+", _GPT2),
    }
)


def tokenizer_files(metadata: Mapping[str, Any]) -> dict[str, str] | None:
    """Returns the contents of the tokenizer files for the metadata of a GGUF file; None without a tokenizer.

    Raises:
        FileError: for a missing or malformed value, and an unknown type of tokenizer.
    """
    kind = metadata.get(_KEY + "model")
    if kind is None or kind == "no_vocab":
        return None
    tokens = _texts(metadata, "tokens")
    if not tokens:
        raise FileError("expected tokens, received none. The file is damaged.", key=_KEY + "tokens")
    types_ = _numbers(metadata, "token_type", len(tokens), NORMAL)
    if kind == "gpt2":
        model, has_bos = _byte_level(metadata, tokens), False
    elif kind == "llama":
        model, has_bos = _sentencepiece(metadata, tokens, types_), True
    else:
        raise FileError(
            f"expected a tokenizer of the kind 'gpt2' or 'llama', received {describe_value(kind)}. Read "
            "tokenizer.json from a Hugging Face folder of the model with "
            "fk.pretrained.Tokenizer.read(folder).",
            key=_KEY + "model",
        )
    added = [
        added_token(token, i, special=number == CONTROL)
        for i, (token, number) in enumerate(zip(tokens, types_, strict=True))
        if token and number in (CONTROL, USER)
    ]
    config: dict[str, Any] = {}
    for name, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"), ("unk", "unknown")):
        number = _token_id(metadata, key, len(tokens))
        if number is None:
            continue
        config[f"{name}_token"] = tokens[number]
    # Llama 3 needs a BOS token even if the file lacks the key
    has_bos = has_bos or (kind == "gpt2" and _SPLITS[_pre(metadata)] == (_LLAMA3,))
    config["add_bos_token"] = bool(metadata.get(_KEY + "add_bos_token", has_bos))
    config["add_eos_token"] = bool(metadata.get(_KEY + "add_eos_token", False))
    ids = {token: number for number, token in enumerate(tokens)}
    model |= {"added_tokens": added, "post_processor": end_template(config, ids)}
    template = metadata.get("tokenizer.chat_template")
    files = {
        "tokenizer.json": json.dumps(model, ensure_ascii=False),
        "tokenizer_config.json": json.dumps(config, ensure_ascii=False),
    }
    if isinstance(template, str):
        files["chat_template.jinja"] = template
    ends = _end_ids(metadata, tokens)
    if ends:
        files["generation_config.json"] = json.dumps({"eos_token_id": ends})
    return files


def _token_id(metadata: Mapping[str, Any], name: str, count: int) -> int | None:
    value = metadata.get(f"{_KEY}{name}_token_id")
    if value is None:
        return None
    if not isinstance(value, int | np.integer) or not 0 <= value < count:
        raise FileError(
            f"expected an id below {count}, received {describe_value(value)}. The file is damaged.",
            key=f"{_KEY}{name}_token_id",
        )
    return int(value)


def _end_ids(metadata: Mapping[str, Any], tokens: Sequence[str]) -> list[int]:
    ids = [_token_id(metadata, name, len(tokens)) for name in ("eos", "eot", "eom")]
    return [i for i in dict.fromkeys(ids) if i is not None]


def _texts(metadata: Mapping[str, Any], name: str) -> list[str]:
    value = metadata.get(_KEY + name)
    if isinstance(value, str | bytes) or value is None:
        raise FileError(
            f"expected a list of texts, received {describe_value(value)}. The file is damaged.",
            key=_KEY + name,
        )
    texts = [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in value]
    if not all(isinstance(text, str) for text in texts):
        raise FileError("expected a list of texts. The file is damaged.", key=_KEY + name)
    return texts


def _numbers(metadata: Mapping[str, Any], name: str, count: int, default: int) -> list:
    value = metadata.get(_KEY + name)
    if value is None:
        return [default] * count
    array = np.asarray(value)
    if array.shape != (count,) or array.dtype.kind not in "iuf":
        raise FileError(
            f"expected {count} numbers, one for each token, received {describe_value(value)}. The "
            "file is damaged.",
            key=_KEY + name,
        )
    return array.tolist()


def _vocabulary(tokens: Sequence[str]) -> dict[str, int]:
    vocabulary: dict[str, int] = {}
    for number, token in enumerate(tokens):
        # a repeated token keeps its first id
        vocabulary.setdefault(token, number)
    return vocabulary


def _pre(metadata: Mapping[str, Any]) -> str:
    is_gpt2 = metadata.get("general.architecture") == "gpt2"
    name = metadata.get(_KEY + "pre", "gpt-2" if is_gpt2 else None)
    if not isinstance(name, str) or name not in _SPLITS:
        raise FileError(
            f"expected the name of a way to split texts, received {describe_value(name)}."
            f"{suggest(str(name), _SPLITS)} Known: {', '.join(sorted(_SPLITS))}. Read tokenizer.json "
            "from a Hugging Face folder of the model.",
            key=_KEY + "pre",
        )
    return name


def _byte_level(metadata: Mapping[str, Any], tokens: Sequence[str]) -> dict[str, Any]:
    splits = map(split, _SPLITS[_pre(metadata)])
    # Llama 3 encodes a word that is a token as this token, even if no merges produce it
    ignores = _SPLITS[_pre(metadata)] == (_LLAMA3,)
    # Qwen normalizes to NFC; llama.cpp does not, but Hugging Face's tokenizer is the reference
    composes = _pre(metadata) in ("qwen2", "deepseek-r1-qwen")
    steps = [*splits, byte_level()]
    if _pre(metadata) == "falcon":
        steps += [{"type": "Digits", "individual_digits": False}, split("[0-9]{3}")]
    return {
        "normalizer": {"type": "NFC"} if composes else None,
        "pre_tokenizer": sequence("pretokenizers", steps),
        "decoder": byte_level(),
        "model": {
            "type": "BPE",
            "vocab": _vocabulary(tokens),
            "ignore_merges": ignores,
            "merges": [merge.split(" ", 1) for merge in _texts(metadata, "merges")],
        },
    }


def _sentencepiece(
    metadata: Mapping[str, Any], tokens: Sequence[str], types_: Sequence[int]
) -> dict[str, Any]:
    scores = _numbers(metadata, "scores", len(tokens), 0)
    prefix = bool(metadata.get(_KEY + "add_space_prefix", True))
    unknown = _token_id(metadata, "unknown", len(tokens))
    if unknown is None:
        unknown = types_.index(UNKNOWN) if UNKNOWN in types_ else 0
    steps = [{"type": "Prepend", "prepend": SPACE}] * prefix + [replace(" ", SPACE)]
    return {
        "normalizer": sequence("normalizers", steps),
        "decoder": piece_decoder(prefix=prefix),
        "model": piece_bpe(
            _vocabulary(tokens), scores, types_, tokens[unknown], key=_KEY + "tokens"
        ),
    }
