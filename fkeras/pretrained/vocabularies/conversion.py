"""Converts the vocabulary of an older checkpoint to `tokenizer.json`.

The class of the tokenizer (`tokenizer_class` in `tokenizer_config.json`, or else the class that belongs to
`model_type` in `config.json`) decides how texts are normalized and split, and which special tokens surround a
text. The vocabulary is in `vocab.txt` (WordPiece), in `vocab.json` and `merges.txt` (byte-level BPE), or in a
model of sentencepiece.
"""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from typing import Any

from fkeras.engine import suggest
from fkeras.host.containers.errors import FileError
from fkeras.host.containers.limits import Limits
from fkeras.host.containers.strict_json import check, field, parse
from fkeras.pretrained.vocabularies import piece_classes, text_classes
from fkeras.pretrained.vocabularies.added_tokens import added_tokens
from fkeras.pretrained.vocabularies.vocabulary_folder import (
    ADDED,
    CONFIG,
    MERGES,
    MODELS,
    SPECIAL,
    TOKENS,
    WORDS,
    TokenizerClass,
    VocabularyFolder,
    special_config,
)

_END = "<|endoftext|>"
_BERT = TokenizerClass(
    text_classes.wordpiece,
    (WORDS,),
    {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"},
)
_ROBERTA_TOKENS = types.MappingProxyType(
    {
        "bos": "<s>",
        "eos": "</s>",
        "sep": "</s>",
        "cls": "<s>",
        "unk": "<unk>",
        "pad": "<pad>",
        "mask": "<mask>",
    }
)
_LLAMA_TOKENS = types.MappingProxyType({"unk": "<unk>", "bos": "<s>", "eos": "</s>"})
_CLASSES: Mapping[str, TokenizerClass] = types.MappingProxyType(
    {
        "BertTokenizer": _BERT,
        "DistilBertTokenizer": _BERT,
        "GPT2Tokenizer": TokenizerClass(
            text_classes.gpt2, (TOKENS, MERGES), {"unk": _END, "bos": _END, "eos": _END}
        ),
        "RobertaTokenizer": TokenizerClass(text_classes.roberta, (TOKENS, MERGES), _ROBERTA_TOKENS),
        "CLIPTokenizer": TokenizerClass(
            text_classes.clip,
            (TOKENS, MERGES),
            {"unk": _END, "bos": "<|startoftext|>", "eos": _END, "pad": _END},
        ),
        "WhisperTokenizer": TokenizerClass(
            text_classes.whisper, (TOKENS, MERGES), {"unk": _END, "bos": _END, "eos": _END}
        ),
        "Qwen2Tokenizer": TokenizerClass(
            text_classes.qwen2, (TOKENS, MERGES), {"unk": _END, "eos": _END, "pad": _END}
        ),
        "LlamaTokenizer": TokenizerClass(piece_classes.llama, MODELS, _LLAMA_TOKENS),
        "TokenizersBackend": TokenizerClass(piece_classes.sentencepiece, MODELS, _LLAMA_TOKENS),
        "GemmaTokenizer": TokenizerClass(
            piece_classes.gemma,
            MODELS,
            {"unk": "<unk>", "bos": "<bos>", "eos": "<eos>", "pad": "<pad>", "mask": "<mask>"},
        ),
        "T5Tokenizer": TokenizerClass(
            piece_classes.t5, MODELS, {"eos": "</s>", "unk": "<unk>", "pad": "<pad>"}
        ),
        "XLMRobertaTokenizer": TokenizerClass(piece_classes.xlm_roberta, MODELS, _ROBERTA_TOKENS),
        "SiglipTokenizer": TokenizerClass(
            piece_classes.siglip, MODELS, {"eos": "</s>", "unk": "<unk>", "pad": "</s>"}, slow=True
        ),
    }
)
# models of sounds, whose vocabulary the configuration reads: there is no text to split
_OF_CHARACTERS = ("wav2vec2",)
# transformers ignores the class LlamaTokenizer of these architectures
_PLAIN_LLAMA = ("mistral", "mixtral", "phi3")
_MODEL_TYPES = types.MappingProxyType(
    {
        "bert": "BertTokenizer",
        "distilbert": "DistilBertTokenizer",
        "gpt2": "GPT2Tokenizer",
        "roberta": "RobertaTokenizer",
        "clip": "CLIPTokenizer",
        "whisper": "WhisperTokenizer",
        **dict.fromkeys(("llama", *_PLAIN_LLAMA), "TokenizersBackend"),
        **dict.fromkeys(("qwen2", "qwen3", "qwen2_moe", "qwen3_moe"), "Qwen2Tokenizer"),
        **dict.fromkeys(("gemma", "gemma2", "gemma3", "gemma3_text"), "GemmaTokenizer"),
        "t5": "T5Tokenizer",
        "siglip": "SiglipTokenizer",
        "xlm-roberta": "XLMRobertaTokenizer",
    }
)


def tokenizer_json(
    originals: Mapping[str, bytes],
    files: Mapping[str, str],
    model: bytes = b"{}",
    limits: Limits | None = None,
) -> tuple[dict[str, str], str] | None:
    """Returns the files of the tokenizer that a vocabulary describes, and the name of the vocabulary's file.

    The result has `tokenizer.json`, and `special_tokens_map.json` where no file names a special token of the
    class. None without a vocabulary, and for models whose vocabulary is that of the outputs.

    Args:
        originals: contents of the files `VOCABULARIES` that the folder has.
        files: texts of `tokenizer_config.json` and `special_tokens_map.json`, if the folder has them.
        model: the content of `config.json`.

    Raises:
        FileError: for a missing, damaged or contradictory file, and for an unknown class.
    """
    if not originals.keys() - {ADDED}:
        return None
    limits = limits or Limits()
    parsed = [
        check(parse(files.get(name, "{}"), None, name, limits), dict, "the text", member=name)
        for name in (SPECIAL, CONFIG)
    ]
    mapping = check(
        parse(model, None, "config.json", limits), dict, "the text", member="config.json"
    )
    if mapping.get("model_type") in _OF_CHARACTERS:
        return None
    config = special_config(*parsed)
    name = _class_name(config, mapping, originals)
    folder = VocabularyFolder(originals, config, name, _CLASSES[name], limits)
    source = folder.source
    content = folder.kind.build(folder)
    vocabulary = content["model"]["vocab"]
    ids = (
        {token: i for i, (token, _) in enumerate(vocabulary)}
        if isinstance(vocabulary, list)
        else dict(vocabulary)
    )
    added = added_tokens(folder, ids, content.pop("special", ()))
    ids |= {token["content"]: token["id"] for token in added}
    # the tokens around a text may be added tokens
    content["post_processor"] = content.pop("around")(ids)
    content = {"version": "1.0", "added_tokens": added, **content}
    made = {"tokenizer.json": json.dumps(content, ensure_ascii=False)}
    unnamed = {name: token for name, token in folder.special.items() if name not in config}
    if unnamed:
        made[SPECIAL] = json.dumps({**parsed[0], **unnamed}, ensure_ascii=False, indent=2)
    return made, source


def _class_name(
    config: Mapping[str, Any], model: Mapping[str, Any], originals: Mapping[str, bytes]
) -> str:
    for mapping, member in ((config, CONFIG), (model, "config.json")):
        name = field(mapping, "tokenizer_class", (str, type(None)), default=None, member=member)
        name = (name or "").removesuffix("Fast")
        if name == "LlamaTokenizer" and model.get("model_type") in _PLAIN_LLAMA:
            name = ""
        if name and name not in ("PreTrainedTokenizer", "TokenizersBackend"):
            if name in _CLASSES:
                return name
            raise FileError(
                f"expected a tokenizer_class among {', '.join(_CLASSES)}, received {name[:80]!r}."
                f"{suggest(name, _CLASSES)} Write tokenizer.json with the program that made the "
                f"tokenizer, or remove {', '.join(originals)} to load the model without a tokenizer.",
                member=member,
            )
    name = model.get("model_type")
    if not isinstance(name, str) or name not in _MODEL_TYPES:
        raise FileError(
            f"expected tokenizer_class in {CONFIG}, or a model_type in config.json among "
            f"{', '.join(_MODEL_TYPES)}, received {str(name)[:80]!r}: {', '.join(originals)} does not tell "
            f"how texts are split. Write tokenizer_class into {CONFIG}.",
            member=CONFIG,
        )
    return _MODEL_TYPES[name]
