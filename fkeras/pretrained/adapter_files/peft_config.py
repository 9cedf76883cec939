"""`adapter_config.json` of PEFT: which modules have adapters, their ranks and scales."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fkeras.authoring.engine import trials
from fkeras.host.containers.errors import FileError
from fkeras.host.containers.strict_json import check, field

# keys without effect on the computation of the adapted model
_NEUTRAL = (
    "auto_mapping",
    "base_model_name_or_path",
    "fan_in_fan_out",
    "inference_mode",
    "init_ia3_weights",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "task_type",
)
_READ = (
    "alpha_pattern",
    "bias",
    "exclude_modules",
    "feedforward_modules",
    "init_lora_weights",
    "layers_pattern",
    "layers_to_transform",
    "lora_alpha",
    "lora_dropout",
    "peft_type",
    "r",
    "rank_pattern",
    "target_modules",
    "use_dora",
    "use_rslora",
)
# initial values that leave the base as it is; others (PiSSA, OLoRA, LoftQ, CorDA) change it
_INITIAL = (True, False, None, "gaussian", "orthogonal", "eva")
_MOST_TRIALS = 1e6


@dataclasses.dataclass(frozen=True)
class AdapterConfig:
    """The content of an `adapter_config.json`.

    Attributes:
        kind: "LORA" or "IA3".
        rank: the rank of modules without a pattern.
        alpha: the numerator of the scale of modules without a pattern.
        ranks: ranks by pattern.
        alphas: numerators by pattern.
        targets: names of modules, or a regular expression; None if the file leaves them out.
        excluded: names of modules that have no adapter, or a regular expression.
        layers: indices of the layers with adapters; None for all layers.
        layer_lists: names of the lists of layers, as regular expressions; empty for any list.
        dropout: dropout in training.
        rank_stabilized: whether the scale is that of rsLoRA.
        decomposed: whether the adapters are those of DoRA.
    """

    kind: str
    rank: int
    alpha: float
    ranks: Mapping[str, int]
    alphas: Mapping[str, float]
    targets: Sequence[str] | str | None
    excluded: Sequence[str] | str
    layers: Sequence[int] | None
    layer_lists: Sequence[str]
    dropout: float
    rank_stabilized: bool
    decomposed: bool

    def matches(self, pattern: str, module: str, path: str) -> bool:
        """Returns whether a regular expression fits a module's name, or its last parts."""
        _check_cost(pattern, module, path)
        # each start after a dot alone: `.*` before the expression would multiply the cost
        starts = [0, *(i + 1 for i, letter in enumerate(module) if letter == ".")]
        return any(re.fullmatch(pattern, module[start:]) for start in starts)

    def scale(self, module: str, rank: int, path: str) -> tuple[int, float]:
        """Returns the rank and the numerator of the scale that the file states for a module."""
        ranks = [r for pattern, r in self.ranks.items() if self.matches(pattern, module, path)]
        alphas = [a for pattern, a in self.alphas.items() if self.matches(pattern, module, path)]
        return (ranks or [self.rank])[0], (alphas or [self.alpha])[0]

    def targeted(self, module: str, path: str) -> bool:
        """Returns whether PEFT adapts a module, given its full name."""
        if _is_named(self.excluded, module, path):
            return False
        if self.targets == "all-linear":
            return True
        if not _is_named(self.targets or (), module, path):
            return False
        if self.layers is None or isinstance(self.targets, str) or module in (self.targets or ()):
            return True
        # the first number is the index of the layer; a later number may be that of an expert
        for name in self.layer_lists:
            _check_cost(name, module, path)
        lists = [rf"(?:^|.*?\.){name}\.(?P<index>\d+)\." for name in self.layer_lists]
        lists = lists or [r".*?\.[^.]*\.(?P<index>\d+)\."]
        found = next((m for pattern in lists if (m := re.match(pattern, module))), None)
        return found is not None and int(found["index"]) in self.layers


def _is_named(names: Sequence[str] | str, module: str, path: str) -> bool:
    """Returns whether a regular expression or the names of a list fit a module."""
    if isinstance(names, str):
        if names:
            _check_cost(names, module, path)
        return re.fullmatch(names, module) is not None
    return any(module == name or module.endswith(f".{name}") for name in names)


def _check_cost(pattern: str, module: str, path: str) -> None:
    """Raises a FileError for an expression that may backtrack for long."""
    if not math.isfinite(cost := trials(pattern, len(module))) or cost > _MOST_TRIALS:
        raise FileError(
            f"the expression {pattern[:80]!r} is invalid, or can backtrack catastrophically on names "
            "of modules. Write the names of modules.",
            file=path,
        )


def read_config(mapping: Mapping[str, Any], path: str) -> AdapterConfig:
    """Reads an `adapter_config.json`.

    Raises:
        FileError: for an unknown kind of adapter, for options that change the base or add weights, and
            for values of another type.
    """
    place = {"file": path}
    kind = field(mapping, "peft_type", str, **place)
    if kind not in ("LORA", "IA3"):
        raise FileError(
            f"expected the peft_type 'LORA' or 'IA3', received {kind[:40]!r}, which fkeras does not "
            "read.",
            **place,
        )
    for key, value in mapping.items():
        if key in _READ or key in _NEUTRAL or value in (None, False, [], {}, ""):
            continue
        raise FileError(
            f"the option {key[:60]!r} has the value {str(value)[:60]}, which fkeras does not support: it "
            "changes weights of the base, or adds others. Merge the adapter in PEFT "
            "(model.merge_and_unload()), and load the merged model.",
            **place,
        )
    initial = mapping.get("init_lora_weights")
    if not any(initial is known or initial == known for known in _INITIAL):
        raise FileError(
            f"init_lora_weights is {str(initial)[:40]!r}, which changes the weights of the base when the "
            "training begins. Save it in PEFT with path_initial_model_for_weight_conversion.",
            **place,
        )
    if mapping.get("bias", "none") != "none":
        raise FileError(
            f"bias is {str(mapping['bias'])[:40]!r}: the biases of the base were trained too. Merge the "
            "adapter in PEFT, and load the merged model.",
            **place,
        )
    keys = ("target_modules", "exclude_modules", "layers_pattern")
    named = {key: field(mapping, key, (list, str, type(None)), None, **place) for key in keys}
    for key, names in named.items():
        for name in names if isinstance(names, list) else ():
            check(name, str, f"the names of {key}", **place)
    targets, lists = named["target_modules"], named["layers_pattern"] or ()
    layers = field(mapping, "layers_to_transform", (list, int, type(None)), None, **place)
    layers = [layers] if isinstance(layers, int) else layers or None
    if layers is not None and isinstance(targets, str):
        raise FileError(
            "layers_to_transform has no effect beside target_modules as an expression. Put the layers into "
            "the expression, or list the names of modules.",
            **place,
        )
    for index in layers or ():
        check(index, int, "the indices of layers_to_transform", **place)
    number = (int, float)
    ranks = field(mapping, "rank_pattern", dict, {}, **place)
    alphas = field(mapping, "alpha_pattern", dict, {}, **place)
    for name, rank in ranks.items():
        check(rank, int, f"the rank of {name[:80]!r}", **place)
    for name, alpha in alphas.items():
        check(alpha, number, f"the alpha of {name[:80]!r}", **place)
    flags = ("use_rslora", "use_dora")
    rslora, dora = (bool(field(mapping, f, (bool, type(None)), False, **place)) for f in flags)
    return AdapterConfig(
        kind=kind,
        rank=field(mapping, "r", int, 8, **place),
        alpha=field(mapping, "lora_alpha", number, 8, **place),
        ranks=ranks,
        alphas=alphas,
        targets=targets,
        excluded=named["exclude_modules"] or (),
        layers=layers,
        layer_lists=(lists,) if isinstance(lists, str) else lists,
        dropout=field(mapping, "lora_dropout", number, 0.0, **place),
        rank_stabilized=rslora,
        decomposed=dora,
    )


def written(mapping: Mapping[str, Any]) -> bytes:
    """Returns the text of an `adapter_config.json`, in the form in which PEFT writes it."""
    return json.dumps(mapping, indent=2, sort_keys=True).encode()
