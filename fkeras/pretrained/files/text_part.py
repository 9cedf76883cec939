"""The text part of a folder whose model also reads images: a language model of another family."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from fkeras.authoring.engine import describe_value
from fkeras.engine import FrozenDict
from fkeras.pretrained.files.folder import Checkpoint

_VISION_2 = FrozenDict(
    {
        "vocab_size": 152064,
        "hidden_size": 8192,
        "intermediate_size": 29568,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "max_window_layers": 80,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e6,
    }
)


@dataclasses.dataclass(frozen=True)
class _TextPart:
    """The text model of an architecture.

    Args:
        model_type: architecture of the text model; None for the architecture in `text_config`.
        defaults: default values that differ from those of the architecture.
        absent: keys of the architecture that transformers does not read here.
    """

    model_type: str | None = None
    defaults: Mapping[str, Any] = FrozenDict({})
    absent: tuple[str, ...] = ()


_ROWS: Mapping[str, _TextPart] = FrozenDict(
    {
        "gemma3": _TextPart("gemma3_text"),
        "idefics3": _TextPart(),
        "llama4": _TextPart("llama4_text"),
        "llava": _TextPart(),
        "llava_next": _TextPart(),
        "mistral3": _TextPart(),
        "qwen2_vl": _TextPart("qwen2", _VISION_2),
        "qwen2_5_vl": _TextPart("qwen2", _VISION_2),
        "qwen3_vl": _TextPart(
            "qwen3",
            FrozenDict({"max_position_embeddings": 128000, "rope_theta": 5e5}),
            ("use_sliding_window", "sliding_window", "max_window_layers"),
        ),
        "smolvlm": _TextPart(),
    }
)
# parts of the names of text tensors, in old and new files, and their names in the family
_RENAMED = (
    (r"language_model\.lm_head\.", "lm_head."),
    (r"(model\.)?language_model\.(model\.)?", "model."),
    (r"model\.text_model\.", "model."),
)
_OTHERS = re.compile(
    r"(model\.)?(visual|vision_tower|vision_model|multi_modal_projector|connector|image_newline)\b"
)
# keys of files without `text_config` that describe images
_OF_IMAGES = re.compile(r"(image|video|vision)_.*|vision_config|text_config")
_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")


def with_part(checkpoint: Checkpoint, part: str | None) -> Checkpoint:
    """Returns the checkpoint of a part.

    Args:
        part: "text" for the language model of a folder with images; None for the whole folder.

    Raises:
        ValueError: for a folder with images and no part, for a part of a folder without, and for a damaged
            configuration.
    """
    mapping = checkpoint.mapping
    name = mapping.get("model_type")
    row = _ROWS.get(name) if isinstance(name, str) else None
    if part not in (None, "text"):
        raise ValueError(f"part: expected 'text' or None, received {describe_value(part)}.")
    if row is None:
        if part is None:
            return checkpoint
        raise ValueError(
            f"part: expected a folder of type {', '.join(_ROWS)}, received the type {str(name)[:80]!r}. Leave "
            "part out."
        )
    if part is None:
        raise ValueError(
            f"expected a model of texts alone, received the type {name!r}, which also reads images. Load the "
            'language model in the folder: fk.pretrained.load(path, part="text").'
        )
    classes = mapping.get("architectures") or ["ForConditionalGeneration"]
    if not str(classes[0]).endswith("ForConditionalGeneration"):
        raise ValueError(
            f"part: expected a model of class ...ForConditionalGeneration, received {str(classes[0])[:80]!r}, "
            "which has another head."
        )
    tensors = {
        _renamed(name): stored
        for name, stored in checkpoint.tensors.items()
        if not _OTHERS.match(name)
    }
    if len(tensors) != sum(not _OTHERS.match(name) for name in checkpoint.tensors):
        raise ValueError(
            "part: expected a name of its own for each tensor of the text part, received tensors of which two have "
            "the same name in the language model. Download the folder again."
        )
    text = mapping.get("text_config", mapping)
    if not isinstance(text, Mapping):
        raise ValueError(f"text_config: expected a mapping, received {describe_value(text)}.")
    kept = {
        key: value
        for key, value in text.items()
        if not _OF_IMAGES.fullmatch(key) and key not in row.absent
    }
    kept |= {key: mapping[key] for key in _IDS if key in mapping and key not in kept}
    missing = {key: value for key, value in row.defaults.items() if key not in kept}
    if "rope_parameters" in kept:
        missing.pop("rope_theta", None)
    model_type = row.model_type or kept.get("model_type", "llama")
    # as in transformers: a head of the file that differs is not tied
    tied = {"tie_word_embeddings": "lm_head.weight" not in tensors}
    kept = {**missing, **_one_position(kept), **tied, "model_type": model_type}
    kept.pop("architectures", None)
    return checkpoint._replace(mapping=kept, tensors=tensors)


def _renamed(name: str) -> str:
    for pattern, other in _RENAMED:
        match = re.match(pattern, name)
        if match:
            return other + name[match.end() :]
    return name


def _one_position(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the keys without sections of rotary positions: the positions of a text are equal in all sections."""
    result = dict(mapping)
    for key in ("rope_scaling", "rope_parameters"):
        scaling = mapping.get(key)
        if isinstance(scaling, Mapping):
            result[key] = {
                name: "default" if value == "mrope" else value
                for name, value in scaling.items()
                if name not in ("mrope_section", "mrope_interleaved")
            }
    return result
