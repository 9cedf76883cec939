"""`Family`: the configuration, the graph and the tensor names of a family of architectures."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any, Generic, TypeVar

from fkeras.engine import Model
from fkeras.host.containers.stored import Stored
from fkeras.pretrained.tables.config import Config
from fkeras.pretrained.tables.names import Row

C = TypeVar("C", bound=Config)

PREPROCESSOR = "preprocessor_config.json"


def _unchanged(config: Any, tensors: Collection[str]) -> Any:
    return config


def _none(config: Any) -> tuple[str, ...]:
    return ()


def _beside(config: Config) -> Any:
    return config.beside.get(PREPROCESSOR)


@dataclasses.dataclass(frozen=True)
class GGUFTable:
    """Describes the GGUF files of a family.

    Args:
        architectures: values of `general.architecture`.
        mapping: returns the keys of `config.json` for the metadata and the tensors of a file.
        names: returns the table of names of a configuration.
        ignored: patterns of tensors that only `mapping` reads.
    """

    architectures: tuple[str, ...]
    mapping: Callable[[Mapping[str, Any], Mapping[str, Stored]], dict[str, Any]]
    names: Callable[[Any], tuple[Row, ...]]
    ignored: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Family(Generic[C]):
    """Describes a family for `load` and `save`.

    Args:
        classes: for each `model_type` of `config.json` the supported classes of transformers, starting
            with the class that `save` writes; other classes have unsupported heads.
        config: class of the configuration.
        build: returns the graph of a configuration, without weights.
        names: returns the table of names of a configuration.
        modules: returns the table with the names of the modules of transformers 5, which adapters of PEFT
            have; None if the modules have the names of the checkpoints.
        unpacked: returns the table of names of folders with a tensor for each kernel of an expert; None if `names`
            returns that table, or if models have no experts.
        tiny: a small configuration that differs from the defaults, for tests.
        prefix: first segment of most tensor names, such as "model."; some checkpoints omit the prefix.
        ignored: `fnmatch` patterns of the names of unused tensors, such as precomputed tables.
        unused: returns further patterns for a configuration, such as blocks that the graph does not have.
        adapted: returns the configuration adapted to the tensors of the checkpoint, by their names in the
            table: tied heads, biases and parts.
        files: other JSON files in the folder that the family reads, such as "preprocessor_config.json";
            `config.beside` holds their content.
        processor: returns the processor of images or audio for the result of `preprocessor`; None for text
            models.
        preprocessor: returns the description of the processor, by default the content of
            "preprocessor_config.json"; None if the folder has no description.
        gguf: description of the GGUF files; None if GGUF is not supported.
    """

    classes: Mapping[str, tuple[str, ...]]
    config: type[C]
    build: Callable[[C], Model]
    names: Callable[[C], tuple[Row, ...]]
    tiny: C
    modules: Callable[[C], tuple[Row, ...]] | None = None
    unpacked: Callable[[C], tuple[Row, ...]] | None = None
    prefix: str = ""
    ignored: tuple[str, ...] = ()
    unused: Callable[[C], tuple[str, ...]] = _none
    adapted: Callable[[C, Collection[str]], C] = _unchanged
    files: tuple[str, ...] = ()
    processor: Callable[[Mapping[str, Any]], Any] | None = None
    preprocessor: Callable[[C], Any] = _beside
    gguf: GGUFTable | None = None

    def processor_of(self, config: C) -> Any:
        """Returns the processor of a folder; None without a description of the processor."""
        mapping = self.preprocessor(config)
        return None if self.processor is None or mapping is None else self.processor(mapping)
