"""Modules of PEFT: the names of tensors in a family's table, and the layers whose kernels they hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from fkeras.engine import suggest
from fkeras.engine.tree.sublayers import sublayers
from fkeras.layers.adapters.kernels import Kernel, kernel_of
from fkeras.pretrained.families.table import family_of_config
from fkeras.pretrained.tables.config import Config
from fkeras.pretrained.tables.names import Match
from fkeras.saving.containers.errors import FileError
from fkeras.saving.weights.weight_source import Stored

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
_PARTS = (
    *("lora_A.weight", "lora_B.weight", "lora_embedding_A", "lora_embedding_B"),
    *("lora_magnitude_vector", "ia3_l", "base_layer.weight"),
)


class Module(NamedTuple):
    """A module of PEFT.

    Attributes:
        match: the row of its weight in the table of names.
        paths: the layers whose kernels the weight holds.
        kernels: the kernels of these layers; None for a weight that is no kernel.
    """

    match: Match
    paths: tuple[str, ...]
    kernels: tuple[Kernel | None, ...]


def modules_of(base: Any, config: Config | None) -> dict[str, Module]:
    """Returns the modules of PEFT by name, for each tensor of the table that is a kernel."""
    if not isinstance(config, Config):
        raise TypeError(
            f"pretrained.load_adapter: expected the configuration of the base, received "
            f"{type(config).__name__}. Write fk.pretrained.load_adapter(folder, loaded.model, loaded.config)."
        )
    inner = dict(sublayers(base))
    modules = {}
    for row in family_of_config(config).names(config):
        for match in row.matches():
            paths = tuple(weight.rpartition("/")[0] for weight in match.weights)
            layers = [inner.get(path) for path in paths]
            is_kernel = all(w.endswith(("/kernel", "/embeddings")) for w in match.weights)
            if len(match.tensors) == 1 and match.tensors[0].endswith(".weight") and all(layers):
                kernels = tuple(kernel_of(layer) if is_kernel else None for layer in layers)
                modules[match.tensors[0].removesuffix(".weight")] = Module(match, paths, kernels)
    return modules


def by_module(
    arrays: Mapping[str, Stored], modules: Mapping[str, Module], config: Any, file: str
) -> dict[str, dict[str, Stored]]:
    """Returns the tensors of each module by the end of their names.

    Raises:
        FileError: for names of no module of the model, and for incomplete modules.
    """
    names: dict[str, dict[str, Stored]] = {}
    unexpected = []
    for name, stored in arrays.items():
        part = next((part for part in _PARTS if name.endswith(f".{part}")), None)
        if part is None and name == f"{PREFIX}lm_head.weight":
            part = "base_layer.weight"  # PEFT writes the head beside an adapted embedding
        if part is None or not name.startswith(PREFIX):
            unexpected.append(name)
            continue
        module = name.removeprefix(PREFIX).removesuffix(f".{part}").removesuffix(".weight")
        names.setdefault(module, {})[part] = stored
    prefix = family_of_config(config).prefix
    # a model without its head leaves the first part of the names out
    candidates = [{n: n for n in names}, {prefix + n: n for n in names}]
    best = max(candidates, key=lambda c: len(c.keys() & modules.keys()))
    unexpected += [n for full, n in best.items() if full not in modules]
    if unexpected or not names:
        listing = ", ".join(name[:120] for name in sorted(unexpected)[:8]) or "no tensor"
        more = f" and {len(unexpected) - 8} more" if len(unexpected) > 8 else ""
        raise FileError(
            f"the adapter belongs to another model: not in the model: {listing}{more}; nothing was "
            f"loaded.{suggest(sorted(unexpected)[0] if unexpected else '', modules)} Load the base that "
            "the adapter was trained on.",
            file=file,
        )
    parts = {full: names[n] for full, n in best.items()}
    for name, tensors in parts.items():
        kinds = set(tensors) - {"base_layer.weight", "lora_magnitude_vector"}
        whole = (
            {"lora_A.weight", "lora_B.weight"},
            {"lora_embedding_A", "lora_embedding_B"},
            {"ia3_l"},
        )
        only_base = set(tensors) == {"base_layer.weight"}
        if kinds not in whole and not only_base:
            raise FileError(
                f"expected both factors of {name!r}, received {', '.join(sorted(tensors))}. The file is "
                "damaged.",
                file=file,
            )
    return parts


def filled(adapter: Any, weights: Mapping[str, np.ndarray]) -> Any:
    """Returns an adapter with these weights, in float32."""
    arrays = {name: jax.device_put(np.array(w, "float32")) for name, w in weights.items()}
    return adapter.replace(**arrays, _built=True)
