"""The table of architecture families."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fkeras.engine import Model
from fkeras.pretrained.families import (
    bart,
    bert,
    clip,
    convnets,
    deberta,
    deepseek,
    dinov2,
    electra,
    falcon,
    gemma,
    gpt2,
    gpt_neox,
    gpt_oss,
    llama,
    llama4,
    mixtral,
    modernbert,
    mpnet,
    opt,
    phi,
    starcoder2,
    t5,
    timm,
    vit,
    wav2vec2,
    whisper,
)
from fkeras.pretrained.tables.config import Config
from fkeras.pretrained.tables.family import Family

FAMILIES: tuple[Family, ...] = (
    llama.FAMILY,
    gemma.FAMILY,
    gpt2.FAMILY,
    mixtral.FAMILY,
    gpt_neox.FAMILY,
    phi.FAMILY,
    starcoder2.FAMILY,
    falcon.FAMILY,
    opt.FAMILY,
    deepseek.FAMILY,
    llama4.FAMILY,
    gpt_oss.FAMILY,
    t5.FAMILY,
    t5.MT5,
    bart.BART,
    bart.MARIAN,
    bert.BERT,
    bert.ROBERTA,
    bert.DISTILBERT,
    electra.ELECTRA,
    electra.ALBERT,
    mpnet.MPNET,
    deberta.DEBERTA_V2,
    modernbert.MODERNBERT,
    vit.VIT,
    vit.DEIT,
    dinov2.DINOV2,
    dinov2.DINOV2_REGISTERS,
    vit.SIGLIP_VISION,
    convnets.RESNET,
    convnets.CONVNEXT,
    timm.TIMM,
    clip.CLIP,
    clip.CLIP_TEXT,
    clip.CLIP_VISION,
    clip.SIGLIP,
    clip.SIGLIP_TEXT,
    whisper.WHISPER,
    wav2vec2.WAV2VEC2,
)


def build(config: Config) -> Model:
    """Returns the graph of a configuration, without weights.

    Args:
        config: configuration of a family, such as `loaded.config` or `LlamaConfig(...)`.

    Raises:
        TypeError: if `config` is not the configuration of a family.

    Example:
        >>> import jax, fkeras as fk
        >>> config = fk.pretrained.LlamaConfig(100, 32, 48, 2, 4)
        >>> model = fk.pretrained.build(config).build(jax.random.key(0))
        >>> model(jax.numpy.array([[1, 2, 3]])).shape
        (1, 3, 100)
    """
    return family_of_config(config).build(config)


def family_of(mapping: Mapping[str, Any]) -> Family:
    """Returns the family of a `config.json`.

    Raises:
        ValueError: for a missing or unknown `model_type`, and for an unsupported head.
    """
    # timm's files have the key "architecture" instead
    model_type = mapping.get("model_type", mapping.get("architecture"))
    types = {name: family for family in FAMILIES for name in family.classes}
    if not isinstance(model_type, str) or model_type not in types:
        raise ValueError(
            f"expected a model_type among {', '.join(sorted(types))}, received "
            f"{str(model_type)[:80]!r}. Other architectures are not supported."
        )
    family = types[model_type]
    classes = mapping.get("architectures")
    for name in classes if isinstance(classes, list | tuple) else ():
        if name not in family.classes[model_type]:
            raise ValueError(
                f"expected a model of class {' or '.join(family.classes[model_type])}, received "
                f"{str(name)[:80]!r}, which has another head. Load a checkpoint of a supported class."
            )
    return family


def family_of_gguf(metadata: Mapping[str, Any]) -> Family:
    """Returns the family of a GGUF file.

    Raises:
        ValueError: for a missing or unknown architecture.
    """
    architecture = metadata.get("general.architecture")
    if architecture == "llama" and metadata.get("llama.expert_count"):
        architecture = "mixtral"  # llama.cpp uses the same architecture name
    tables = {
        name: family for family in FAMILIES if family.gguf for name in family.gguf.architectures
    }
    if not isinstance(architecture, str) or architecture not in tables:
        raise ValueError(
            f"expected a general.architecture among {', '.join(sorted(tables))}, received "
            f"{str(architecture)[:80]!r}. Other architectures are not supported."
        )
    return tables[architecture]


def family_of_config(config: Config) -> Family:
    """Returns the family of a configuration.

    Raises:
        TypeError: if `config` is not the configuration of a family.
    """
    for family in FAMILIES:
        if type(config) is family.config:
            return family
    raise TypeError(
        f"expected the configuration of a pretrained model, such as loaded.config, received "
        f"{type(config).__name__}."
    )
