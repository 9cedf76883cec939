"""A family of architectures: configuration, graph, names of tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any, Generic, TypeVar

from fkeras.engine import Model
from fkeras.pretrained.tables.config import Config
from fkeras.pretrained.tables.names import Row
from fkeras.saving.weights.weight_source import Stored

C = TypeVar("C", bound=Config)

PREPROCESSOR = "preprocessor_config.json"


def _unchanged(config: Any, tensors: Collection[str]) -> Any:
    return config


@dataclasses.dataclass(frozen=True)
class GGUFTable:
    """The form of a family in GGUF files.

    Args:
        architectures: values of `general.architecture`.
        mapping: returns the keys of `config.json` for the pairs and the tensors of a file.
        names: returns the table of names of a configuration.
        ignored: patterns of tensors that only `mapping` reads.
    """

    architectures: tuple[str, ...]
    mapping: Callable[[Mapping[str, Any], Mapping[str, Stored]], dict[str, Any]]
    names: Callable[[Any], tuple[Row, ...]]
    ignored: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Family(Generic[C]):
    """A family, as the loader and the writer read it.

    Args:
        classes: for each `model_type` of `config.json` the classes of transformers whose
            computation the graph has, the usual one first; other classes have another head.
        config: class of the configuration.
        build: returns the graph of a configuration, without weights.
        names: returns the table of names of a configuration.
        tiny: a small configuration unlike the defaults, for tests.
        prefix: first segment of most names, which some files leave out, such as "model.".
        ignored: patterns, as of `fnmatch`, of tensors without effect, such as precomputed tables.
        adapted: returns the configuration for the tensors that a file holds, by their names in the
            table: tied heads and biases.
        files: further JSON files of a folder that the family reads, such as
            "preprocessor_config.json"; `config.beside` holds those that exist.
        processor: returns the preparation of inputs, such as images, for the content of
            "preprocessor_config.json"; None for a family without preparation.
        gguf: the form in GGUF files; None for a family that GGUF lacks.
    """

    classes: Mapping[str, tuple[str, ...]]
    config: type[C]
    build: Callable[[C], Model]
    names: Callable[[C], tuple[Row, ...]]
    tiny: C
    prefix: str = ""
    ignored: tuple[str, ...] = ()
    adapted: Callable[[C, Collection[str]], C] = _unchanged
    files: tuple[str, ...] = ()
    processor: Callable[[Mapping[str, Any]], Any] | None = None
    gguf: GGUFTable | None = None

    def processor_of(self, config: C) -> Any:
        """Returns the preparation of inputs of a folder; None without its file."""
        mapping = config.beside.get(PREPROCESSOR)
        return None if self.processor is None or mapping is None else self.processor(mapping)
