"""Base class of the configurations of encoders, whose checkpoints have different heads."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import ClassVar, TypeVar

from fkeras.pretrained.tables.heads import HeadsConfig

C = TypeVar("C", bound="EncoderConfig")


class EncoderConfig(HeadsConfig):
    """Configuration of an encoder."""

    #: suffixes of the tensors that a classifier of texts has, and a classifier of tokens lacks
    pooling: ClassVar[tuple[str, ...]] = ()


def with_parts(config: C, tensors: Collection[str]) -> C:
    """Returns the configuration with the parts to which the tensors belong.

    Classifiers of texts, classifiers of tokens and the answers to questions may have equal tensor names: the
    class in `config.json` tells them apart.
    """
    parts = {
        part
        for part, endings in config.endings.items()
        if endings and any(f"/{name}".endswith(endings) for name in tensors)
    }
    if "classifier" in parts:
        named = config.named_parts
        if named is None and config.pooling:
            is_pooled = any(name.endswith(config.pooling) for name in tensors)
            named = ("classifier",) if is_pooled else ("token_classifier",)
        if {*(named or ())} & {"token_classifier", "answers"}:
            parts = parts - {"classifier"} | {*(named or ())}
    # in the order of the table
    return dataclasses.replace(
        config, parts=tuple(part for part in config.endings if part in parts)
    )
