"""Base class of the configurations of encoders, whose checkpoints have different heads."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, TypeVar

from fkeras.authoring.engine import Integer, integer, several, text
from fkeras.engine import FrozenDict, option
from fkeras.pretrained.tables.config import Config

C = TypeVar("C", bound="EncoderConfig")


class EncoderConfig(Config):
    """Configuration of an encoder.

    Args of the family:
        parts: parts of the checkpoint beside the encoder, such as "pooler" or "classifier". The model has
            an output for each head. Not a key of `config.json`: `load` derives the parts from the tensor
            names.
        num_labels: number of classes of the classifier.
    """

    parts: tuple[str, ...] = option(
        default=(), convert=several(text(), "a tuple of names", least=0), kw_only=True
    )
    num_labels: Integer = option(default=2, convert=integer(minimum=1), kw_only=True)

    #: for each part the suffixes of its tensor names
    endings: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict({})

    @classmethod
    def canonical(cls, mapping: Mapping[str, Any]) -> Mapping[str, Any]:
        labels = mapping.get("id2label")
        fields = dict(mapping)
        if isinstance(labels, Mapping):
            fields["num_labels"] = len(labels)
        return fields

    def write(self) -> dict[str, Any]:
        mapping = super().write()
        mapping.pop("parts", None)
        return mapping


def with_parts(config: C, tensors: Collection[str]) -> C:
    """Returns the configuration with the parts to which the tensors belong."""
    parts = (
        part
        for part, endings in config.endings.items()
        if any(name.endswith(endings) for name in tensors)
    )
    return dataclasses.replace(config, parts=tuple(parts))
