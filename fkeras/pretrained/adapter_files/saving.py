"""`save_adapter`: adapters as folders of PEFT."""

from __future__ import annotations

import collections
import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from fkeras.atomic_files.atomic import as_path, replacing
from fkeras.authoring.engine import hides_internal_frames, require_layer
from fkeras.authoring.layers import adapted_layers, float_layer
from fkeras.authoring.transforms import take_out
from fkeras.engine import Model
from fkeras.host.containers.safetensors import write
from fkeras.pretrained.adapter_files.modules import (
    CONFIG,
    PREFIX,
    WEIGHTS,
    Module,
    modules_of,
    writes_current_names,
)
from fkeras.pretrained.adapter_files.peft_config import written
from fkeras.pretrained.tables.config import Config
from fkeras.pretrained.tables.layout import Layout
from fkeras.transforms import IA3, DoRA, LoRA, adapters


@hides_internal_frames
def save_adapter(
    folder: str | os.PathLike[str], model: Model, config: Config, *, base_model: str = ""
) -> None:
    """Writes the adapters of a model as a folder of PEFT.

    `peft.PeftModel.from_pretrained` and serving engines open the folder beside the base. Adapters of
    projections that the checkpoint fuses, such as query, key and value, become one adapter: of the
    same rank where they have the same A, and else of the sum of their ranks. A LoRA of an embedding
    that is tied to the logits becomes two adapters, of the embedding and of the head.

    Args:
        folder: the folder; missing folders are created, both files are replaced, each atomically.
        model: a model whose adapters are all `LoRA`, all `DoRA` or all `IA3`.
        config: the configuration of the base, such as `loaded.config`.
        base_model: name or folder of the base, which serving engines read.

    Raises:
        TypeError: for another value than a model or a configuration.
        ValueError: for a model without adapters, for adapters of several kinds, and for adapters or
            layers without a form in PEFT.
        OSError: if a file cannot be written.

    Example:
        >>> import jax, pathlib, tempfile, fkeras as fk
        >>> from fkeras import transforms
        >>> config = fk.pretrained.LlamaConfig(100, 32, 48, 2, 4)
        >>> model = fk.pretrained.build(config).build(jax.random.key(0))
        >>> adapted = transforms.adapt(model, "block_*/query", transforms.LoRA(2), jax.random.key(1))
        >>> folder = tempfile.mkdtemp()
        >>> fk.pretrained.save_adapter(folder, adapted, config)
        >>> sorted(path.name for path in pathlib.Path(folder).iterdir())
        ['adapter_config.json', 'adapter_model.safetensors']
    """
    require_layer(model, "pretrained.save_adapter")
    folder = as_path(folder)
    by_path = adapters(model).layers  # raises for a model without adapters
    kinds = {type(adapter) for adapter in by_path.values()}
    if len(kinds) > 1 or not kinds <= {LoRA, DoRA, IA3}:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise ValueError(
            f"pretrained.save_adapter: expected adapters that are all LoRA, all DoRA or all IA3, received "
            f"{names}. Write fk.save_weights(path, transforms.adapters(model)) for others."
        )
    base = take_out(model)[0]
    current = isinstance(config, Config) and writes_current_names(config)
    modules = modules_of(base, config, current)
    owners = {
        path: name
        for name, module in modules.items()
        for path in module.paths
        if not module.match.copy and None not in module.kernels
    }
    heads = {m.paths[0]: name for name, m in modules.items() if m.match.copy and m.match.logits}
    inner = dict(adapted_layers(base))
    grouped: dict[str, dict[str, Any]] = {}
    tied: dict[str, str] = {}
    for path, adapter in by_path.items():
        if path not in owners:
            raise ValueError(
                f"pretrained.save_adapter: {path!r} has no tensor of its own in the checkpoint, or modules "
                "share the tensor, which PEFT does not adapt. Merge its adapter."
            )
        grouped.setdefault(owners[path], {})[path] = adapter
        # an encoder has no logits that are tied to its embeddings
        if getattr(float_layer(inner[path]), "tie_weights", False) and path in heads:
            tied[owners[path]] = heads[path]
    kind = kinds.pop()
    layout = config.layout or Layout(())
    arrays: dict[str, np.ndarray] = {}
    settings: dict[str, Any] = {"peft_type": "IA3" if kind is IA3 else "LORA"}
    if kind is IA3:
        arrays, fed = _ia3_arrays(grouped, modules)
        settings["feedforward_modules"] = _targets(fed, modules, layout)
    else:
        ranks, alphas = {}, {}
        stabilized = all(adapter.rank_stabilized for adapter in by_path.values())
        for name, own in grouped.items():
            tensors, ranks[name], scale = _lora_arrays(name, own, modules[name])
            alpha = scale * (math.sqrt(ranks[name]) if stabilized else ranks[name])
            alphas[name] = int(alpha) if float(alpha).is_integer() else alpha
            arrays |= tensors
            if name in tied:
                # transposed weights exchange the factors
                head, (a, b) = tied[name], tensors.values()
                arrays |= {f"{head}.lora_A.weight": b.T, f"{head}.lora_B.weight": a.T}
                ranks[head], alphas[head] = ranks[name], alphas[name]
        rank, alpha = (
            collections.Counter(v.values()).most_common(1)[0][0] for v in (ranks, alphas)
        )
        settings |= {"r": rank, "lora_alpha": alpha, "use_dora": kind is DoRA, "bias": "none"}
        settings |= {"use_rslora": stabilized, "init_lora_weights": True}
        settings["rank_pattern"] = {layout.in_file(n): r for n, r in ranks.items() if r != rank}
        settings["alpha_pattern"] = {layout.in_file(n): a for n, a in alphas.items() if a != alpha}
        drops = collections.Counter(adapter.dropout for adapter in by_path.values())
        settings["lora_dropout"] = drops.most_common(1)[0][0]
    settings |= {
        "base_model_name_or_path": base_model,
        "fan_in_fan_out": any(_is_transposed(modules[name]) for name in grouped),
        "inference_mode": True,
        "target_modules": _targets({*grouped, *tied.values()}, modules, layout),
        "task_type": "CAUSAL_LM" if "lm_head" in modules else None,
    }
    named = {f"{PREFIX}{layout.in_file(name)}": array for name, array in arrays.items()}
    os.makedirs(folder, exist_ok=True)
    with replacing(os.path.join(folder, WEIGHTS)) as file:
        write(file, named, {"format": "pt"})
    with replacing(os.path.join(folder, CONFIG)) as file:
        file.write(written(settings))


def _targets(names: Any, modules: Mapping[str, Module], layout: Layout) -> list[str]:
    """Returns the last parts of names where all modules with such a name have an adapter, else names."""
    lasts = {name.rpartition(".")[2] for name in names}
    same = {last: [n for n in modules if n.rpartition(".")[2] == last] for last in lasts}
    whole = {last for last in lasts if all(name in names for name in same[last])}
    return sorted(whole | {layout.in_file(n) for n in names if n.rpartition(".")[2] not in whole})


def _is_transposed(module: Module) -> bool:
    """Returns whether the tensor is (in, out), as in GPT-2, and not (out, in)."""
    shapes = [kernel.shape for kernel in module.kernels if kernel is not None]
    if module.kernels[0] is None or module.kernels[0].is_table:
        return False
    inputs = math.prod(module.kernels[0].sizes(module.kernels[0].inputs))
    outputs = sum(math.prod(s) for s in shapes) // inputs
    (shape,) = module.match.tensor_shapes(dict(zip(module.match.weights, shapes, strict=True)))
    if inputs != outputs:
        return shape == (inputs, outputs)
    # of a square tensor the shape does not tell
    marked = [np.arange(math.prod(s)).reshape(s) for s in shapes]
    (tensor,) = module.match.operation.write_all(tuple(marked))
    return bool(tensor[0, 1] == 1)


def _lora_arrays(
    name: str, own: Mapping[str, Any], module: Module
) -> tuple[dict[str, np.ndarray], int, float]:
    """Returns the tensors of a module, its rank and its scale."""
    window: tuple[int, ...] = ()
    lefts, rights, magnitudes = [], [], []
    for path, kernel in zip(module.paths, module.kernels, strict=True):
        assert kernel is not None
        size, adapter = math.prod(kernel.sizes(kernel.outputs)), own.get(path)
        if adapter is None:
            if any(isinstance(other, DoRA) for other in own.values()):
                raise ValueError(
                    f"pretrained.save_adapter: the checkpoint fuses {', '.join(module.paths)}: give each of "
                    "them a DoRA, or none."
                )
            lefts.append(None)
            rights.append(np.zeros((size, 0), "float32"))
            continue
        if kernel.shared or adapter.axes(kernel) != (f"{kernel.inputs}_", f"_{kernel.outputs}"):
            raise ValueError(
                f"pretrained.save_adapter: the factors of {path!r} span other axes than those of PEFT. "
                "Merge the adapter, or train one with last_axis=False."
            )
        window = tuple(range(2, len(kernel.shape))) if kernel.is_window else ()
        a, b = (np.asarray(w, "float32") for w in (adapter.a, adapter.b))
        a = np.moveaxis(a, (-1, -2), (0, 1)) if window else a.reshape(-1, adapter.rank).T
        lefts.append((a, adapter.scale))
        rights.append(b.reshape(adapter.rank, size).T)
        if isinstance(adapter, DoRA):
            magnitudes.append(np.asarray(adapter.magnitude, "float32").reshape(-1))
    present = [left for left in lefts if left is not None]
    first, scale = present[0]
    if all(np.array_equal(a, first) and s == scale for a, s in present):
        a, rank = first, first.shape[0]
        rights = [r if r.shape[1] else np.zeros((len(r), rank), "float32") for r in rights]
        b = np.concatenate(rights)[module.order]
    else:
        # other factors A: one adapter with all of them, whose B is block-diagonal
        a = np.concatenate([left for left, _ in present])
        rank, column = a.shape[0], 0
        b = np.zeros((sum(len(r) for r in rights), rank), "float32")
        row = 0
        for left, right in zip(lefts, rights, strict=True):
            factor = 1.0 if left is None else left[1] / scale
            b[row : row + len(right), column : column + right.shape[1]] = right * factor
            row, column = row + len(right), column + right.shape[1]
        b = b[module.order]
    kernel = module.kernels[0]
    assert kernel is not None
    if kernel.is_table:
        keys = ("lora_embedding_A", "lora_embedding_B")
    else:
        keys = ("lora_A.weight", "lora_B.weight")
    b = b.reshape(*b.shape, *(1 for _ in window))
    arrays = {f"{name}.{keys[0]}": a, f"{name}.{keys[1]}": b}
    if magnitudes:
        arrays[f"{name}.lora_magnitude_vector"] = np.concatenate(magnitudes)[module.order]
    return arrays, rank, scale


def _ia3_arrays(
    grouped: Mapping[str, Mapping[str, Any]], modules: Mapping[str, Module]
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Returns the tensors of all modules, and the modules whose inputs are scaled."""
    arrays, fed = {}, []
    for name, own in grouped.items():
        parts = []
        for path, kernel in zip(modules[name].paths, modules[name].kernels, strict=True):
            assert kernel is not None
            size = math.prod(kernel.sizes(kernel.outputs))
            adapter = own.get(path)
            parts.append(
                np.ones(size) if adapter is None else np.asarray(adapter.factors).reshape(-1)
            )
        scales = {adapter.scales for adapter in own.values()}
        if scales == {"inputs"} and len(parts) == 1:
            fed.append(name)
            factors = parts[0][None]
        elif scales == {"outputs"}:
            factors = np.concatenate(parts)[modules[name].order, None]
        else:
            raise ValueError(
                f"pretrained.save_adapter: the checkpoint fuses {', '.join(modules[name].paths)}: scale "
                "their outputs, not their inputs."
            )
        arrays[f"{name}.ia3_l"] = factors.astype("float32")
    return arrays, fed
