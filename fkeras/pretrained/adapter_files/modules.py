"""Modules of PEFT: the names of tensors in a family's table, and the layers whose kernels they hold."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from fkeras.authoring.layers import LOGITS, Kernel, adapted_layers, kernel_of
from fkeras.engine import suggest
from fkeras.host.containers.errors import FileError
from fkeras.host.containers.stored import Stored
from fkeras.pretrained.families.table import family_of_config
from fkeras.pretrained.tables.config import Config
from fkeras.pretrained.tables.names import Match, Transpose

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
_PARTS = (
    "lora_A.weight",
    "lora_B.weight",
    "lora_embedding_A",
    "lora_embedding_B",
    "lora_magnitude_vector",
    "ia3_l",
    "base_layer.weight",
)


class Module(NamedTuple):
    """A module of PEFT.

    Attributes:
        match: the row of its weight in the table of names.
        paths: the layers whose kernels the weight holds.
        kernels: the kernels of these layers; None for a weight that PEFT cannot adapt: no kernel, or a
            table of several modules, of which PEFT replaces only one.
    """

    match: Match
    paths: tuple[str, ...]
    kernels: tuple[Kernel | None, ...]

    @property
    def order(self) -> np.ndarray:
        """For each output of the tensor its index among the outputs of all layers, one layer after the other."""
        sizes = [k.sizes(k.outputs) for k in self.kernels if k is not None]
        counts = [math.prod(size) for size in sizes]
        if len(counts) == 1:
            return np.arange(counts[0])
        marked = np.split(np.arange(sum(counts), dtype="int32"), np.cumsum(counts)[:-1])
        # the axes of the outputs come last in a kernel of a fused tensor
        kernels = [
            np.broadcast_to(part.reshape(size), kernel.shape)
            for part, size, kernel in zip(marked, sizes, self.kernels, strict=True)
            if kernel is not None
        ]
        (tensor,) = self.match.operation.write_all(tuple(kernels))
        # (in, out) in GPT-2, (out, in) elsewhere
        return tensor[0] if len(tensor) == 1 or tensor[0, 0] == tensor[1, 0] else tensor[:, 0]

    @property
    def is_vocabulary(self) -> bool:
        """Whether the weight is a table of embeddings, or the weights of the logits."""
        kernel = self.kernels[0]
        return kernel is not None and (kernel.is_table or kernel.name == LOGITS)


def modules_of(base: Any, config: Config | None, current: bool = False) -> dict[str, Module]:
    """Returns the modules of PEFT by name, for each tensor of the table that is a kernel.

    Args:
        current: whether modules have their names in transformers 5, not those of the checkpoint.
    """
    if not isinstance(config, Config):
        raise TypeError(
            f"pretrained.load_adapter: expected the configuration of the base, received "
            f"{type(config).__name__}. Write fk.pretrained.load_adapter(folder, loaded.model, loaded.config)."
        )
    inner = dict(adapted_layers(base))
    modules = {}
    family = family_of_config(config)
    names = family.modules if current and family.modules is not None else family.names
    for row in names(config):
        for match in row.matches():
            logits = f"{match.weights[0].rpartition('/')[0]}/{LOGITS}"
            # `load_adapter` unties an embedding whose vectors and logits PEFT adapts separately
            if match.copy and match.logits and logits in inner:
                match = dataclasses.replace(
                    match, weights=(logits,), operation=Transpose(), copy=False
                )
            paths = tuple(w if w in inner else w.rpartition("/")[0] for w in match.weights)
            layers = [inner.get(path) for path in paths]
            is_kernel = all(
                w in inner or w.endswith(("/kernel", "/embeddings")) for w in match.weights
            )
            if len(match.tensors) == 1 and match.tensors[0].endswith(".weight") and all(layers):
                kernels = tuple(kernel_of(layer) if is_kernel else None for layer in layers)
                modules[match.tensors[0].removesuffix(".weight")] = Module(match, paths, kernels)
    shared = {m.paths for m in modules.values() if m.match.copy and not m.match.logits}
    return {
        name: module._replace(kernels=(None,)) if module.paths in shared else module
        for name, module in modules.items()
    }


def has_current_names(arrays: Mapping[str, Stored], base: Any, config: Any) -> bool:
    """Returns whether tensors have the names of the modules of transformers 5, not of the checkpoint."""

    def known(current: bool) -> int:
        modules = modules_of(base, config, current)  # checks the configuration
        prefix = family_of_config(config).prefix
        names = {*modules, *(name.removeprefix(prefix) for name in modules)}
        return sum(_split(name)[0] in names for name in arrays)

    return known(True) > known(False)


def writes_current_names(config: Config) -> bool:
    """Returns whether the modules of the version of transformers that wrote `config` have current names."""
    return not str(config.source.get("transformers_version")).startswith(("3.", "4."))


def _split(name: str) -> tuple[str, str | None]:
    """Returns the module and the end of the name of a tensor; None for an unknown end."""
    part = next((part for part in _PARTS if name.endswith(f".{part}")), None)
    module = name.removeprefix(PREFIX)
    return module if part is None else module.removesuffix(f".{part}"), part


def by_module(
    arrays: Mapping[str, Stored], modules: Mapping[str, Module], config: Any, file: str
) -> dict[str, dict[str, Stored]]:
    """Returns the tensors of each module by the end of their names.

    Raises:
        FileError: for names of no module of the model, and for incomplete modules.
    """
    names: dict[str, dict[str, Stored]] = {}
    unexpected = []
    prefix = family_of_config(config).prefix
    tables = {name for name, module in modules.items() if module.is_vocabulary}
    tables |= {name.removeprefix(prefix) for name in tables}
    for name, stored in arrays.items():
        module, part = _split(name)
        if part is None and module.removesuffix(".weight") in tables:
            # PEFT writes head and embedding of the base if one of them has an adapter
            module, part = module.removesuffix(".weight"), "base_layer.weight"
        if part is None or not name.startswith(PREFIX):
            unexpected.append(name)
            continue
        names.setdefault(module, {})[part] = stored
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
