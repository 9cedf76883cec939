"""Adapters in files: folders of PEFT both ways, and KerasHub's `.lora.h5`."""

from __future__ import annotations

import collections
import math
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from fkeras.atomic_files.atomic import as_path, replacing
from fkeras.engine import Model, suggest
from fkeras.engine.layer.trainable import set_trainable
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.engine.models.partition import require_layer
from fkeras.engine.tree.sublayers import sublayers
from fkeras.layers.adapters.kernels import Kernel, float_layer, kernel_of
from fkeras.pretrained.adapter_config import AdapterConfig, read_config, written
from fkeras.pretrained.config import Config
from fkeras.pretrained.families import family_of_config
from fkeras.pretrained.folder import read_json
from fkeras.pretrained.names import Match
from fkeras.saving.containers.errors import FileError, reading
from fkeras.saving.containers.hdf5 import open_store
from fkeras.saving.containers.limits import Limits
from fkeras.saving.weights.safetensors import read_table, write
from fkeras.saving.weights.weight_source import Stored
from fkeras.transforms import IA3, Adapter, DoRA, LoRA, adapters, replace_layers
from fkeras.transforms.adapting.places import put_in, take_out

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."
# the names of KerasHub's default targets
_KERAS_TARGETS = ("query_dense", "value_dense", "query", "value")
_PARTS = (
    *("lora_A.weight", "lora_B.weight", "lora_embedding_A", "lora_embedding_B"),
    *("lora_magnitude_vector", "ia3_l", "base_layer.weight"),
)


class _Module(NamedTuple):
    """A module of PEFT: the row of its weight, and the layers whose kernels the weight holds."""

    match: Match
    paths: tuple[str, ...]
    kernels: tuple[Kernel | None, ...]


@hides_internal_frames
def load_adapter(
    path: str | os.PathLike[str],
    model: Model,
    config: Config | None = None,
    *,
    alpha: float | None = None,
    limits: Limits | None = None,
) -> Model:
    """Returns a model with the adapters of a file, over the same frozen weights.

    Reads folders of PEFT (`adapter_config.json` and `adapter_model.safetensors`): LoRA with rsLoRA,
    DoRA and patterns of ranks, and IA3. The names must be those of the architecture; otherwise
    nothing is loaded, and one error lists all differences. Options that change the weights of the
    base are rejected. A LoRA of fused projections becomes an adapter of each projection.

    Reads `.lora.h5` of KerasHub too. The file has neither names nor the scale: its adapters are
    assigned in order to the layers named `query_dense`, `value_dense`, `query` and `value`.

    An adapter of an embedding that is tied to the logits changes only the lookup in PEFT: the
    embedding of the result is not tied.

    Args:
        path: the folder of PEFT, or the `.lora.h5` file.
        model: the base, such as `loaded.model`, with float or quantized weights.
        config: the configuration of the base, such as `loaded.config`; None for a `.lora.h5` file.
        alpha: numerator of the scale of a `.lora.h5` file; None for its rank.
        limits: limits on sizes.

    Raises:
        FileNotFoundError: for a missing file.
        FileError: for a damaged file, for unsupported options, and for adapters of another model.
        TypeError: for another value than a model or a configuration.

    Example:
        >>> import jax, tempfile, fkeras as fk
        >>> from fkeras import transforms
        >>> config = fk.pretrained.LlamaConfig(100, 32, 48, 2, 4)
        >>> model = fk.pretrained.build(config).build(jax.random.key(0))
        >>> key = jax.random.key(1)
        >>> adapted = transforms.adapt(model, "block_*/query", transforms.LoRA(rank=2), key)
        >>> folder = tempfile.mkdtemp()
        >>> fk.pretrained.save_adapter(folder, adapted, config)
        >>> fk.pretrained.load_adapter(folder, model, config) == adapted
        True
    """
    require_layer(model, "pretrained.load_adapter")
    path, limits = as_path(path), limits or Limits()
    base = set_trainable(take_out(model)[0], False)
    if not os.path.isdir(path):
        return put_in(base, _keras_adapters(path, base, alpha, limits))
    if alpha is not None:
        raise ValueError(
            "pretrained.load_adapter: alpha belongs to a .lora.h5 file; adapter_config.json has its own. "
            "Leave it out."
        )
    file = os.path.join(path, CONFIG)
    settings = read_config(read_json(file, limits), file)
    weights = os.path.join(path, WEIGHTS)
    arrays = read_table(weights, limits).arrays
    modules = _modules(base, config)
    parts = _by_module(arrays, modules, config, weights)
    _check_targets(settings, parts, modules, weights)
    base = _untied(base, parts, modules)
    inner = dict(sublayers(base))
    found: dict[str, Any] = {}
    for name, tensors in parts.items():
        module = modules[name]
        with reading(weights, None, name):
            read = _ia3 if settings.kind == "IA3" else _lora
            found.update(read(name, tensors, module, inner, settings, weights))
    return put_in(base, found)


def _modules(base: Any, config: Config | None) -> dict[str, _Module]:
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
                modules[match.tensors[0].removesuffix(".weight")] = _Module(match, paths, kernels)
    return modules


def _by_module(
    arrays: Mapping[str, Stored], modules: Mapping[str, _Module], config: Any, file: str
) -> dict[str, dict[str, Stored]]:
    """Returns the tensors of each module by the end of their names.

    Raises:
        FileError: for names of no module of the model, and for incomplete modules.
    """
    names: dict[str, dict[str, Stored]] = {}
    unexpected = []
    for name, stored in arrays.items():
        part = next((part for part in _PARTS if name.endswith(f".{part}")), None)
        if part is None and name == f"{_PREFIX}lm_head.weight":
            part = "base_layer.weight"  # PEFT writes the head beside an adapted embedding
        if part is None or not name.startswith(_PREFIX):
            unexpected.append(name)
            continue
        module = name.removeprefix(_PREFIX).removesuffix(f".{part}").removesuffix(".weight")
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


def _check_targets(
    settings: AdapterConfig,
    parts: Mapping[str, Mapping[str, Stored]],
    modules: Mapping[str, _Module],
    file: str,
) -> None:
    """Raises a FileError if the file lacks a module that its configuration names."""
    adapted = {name for name, tensors in parts.items() if set(tensors) != {"base_layer.weight"}}
    if settings.targets is None or settings.partial or settings.targets == "all-linear":
        return
    named = {
        name
        for name, module in modules.items()
        if None not in module.kernels and settings.targeted(name, file)
    }
    missing = sorted(named - adapted)
    if missing:
        raise FileError(
            f"target_modules names {', '.join(missing[:6])}{' ...' if len(missing) > 6 else ''}, and the "
            "file has no adapter of these modules; nothing was loaded. The adapter belongs to another model, "
            "or the file is damaged.",
            file=file,
        )


def _untied(
    base: Any,
    parts: Mapping[str, Mapping[str, Stored]],
    modules: Mapping[str, _Module],
) -> Any:
    """Returns the base with weights of its own for the logits, where only the lookup is adapted."""
    adapted = [name for name, tensors in parts.items() if "lora_embedding_A" in tensors]
    paths = {path for name in adapted for path in modules[name].paths}

    def untie(path: str, layer: Any) -> Any:
        if path not in paths or not getattr(layer, "tie_weights", False):
            return None
        return layer.replace(tie_weights=False, reverse_embeddings=layer.embeddings.T)

    return replace_layers(base, untie)


def _lora(
    name: str,
    tensors: Mapping[str, Stored],
    module: _Module,
    inner: Mapping[str, Any],
    settings: AdapterConfig,
    file: str,
) -> dict[str, Adapter]:
    """Returns the adapters of a module with LoRA or DoRA."""
    if "base_layer.weight" in tensors:
        _check_base(name, tensors["base_layer.weight"], module, inner, file)
    if set(tensors) == {"base_layer.weight"}:
        return {}
    embedding = "lora_embedding_A" in tensors
    names = (
        ("lora_embedding_A", "lora_embedding_B")
        if embedding
        else ("lora_A.weight", "lora_B.weight")
    )
    a, b = (np.asarray(tensors[n].read()) for n in names)
    rank = a.shape[0] if a.ndim else 0
    stated, alpha = settings.scale(name, rank, file)
    if rank != stated or rank < 1 or b.ndim < 2 or b.shape[1] != rank:
        raise FileError(
            f"expected factors of {name!r} of rank {stated}, as the configuration states, received "
            f"{a.shape} and {b.shape}. The file is damaged.",
            file=file,
        )
    magnitude = tensors.get("lora_magnitude_vector")
    if settings.decomposed != (magnitude is not None):
        raise FileError(
            f"{name!r} has {'no' if magnitude is None else 'a'} lora_magnitude_vector, and use_dora is "
            f"{settings.decomposed}. The file is damaged.",
            file=file,
        )
    kind: type[LoRA] = DoRA if settings.decomposed else LoRA
    options = {"dropout": settings.dropout, "rank_stabilized": settings.rank_stabilized}
    adapter = kind(rank, float(alpha), **options)
    pieces = _pieces(name, module, inner, adapter, file)
    b = b.reshape(b.shape[0], -1)
    magnitudes = None if magnitude is None else np.asarray(magnitude.read()).reshape(-1)
    # a module that holds several projections shares A, and each projection has rows of B
    sizes = [math.prod(kernel.sizes(kernel.outputs)) for kernel, _ in pieces]
    if b.shape != (sum(sizes), rank) or (
        magnitudes is not None and magnitudes.shape != (sum(sizes),)
    ):
        raise FileError(
            f"expected lora_B of {name!r} of shape {(sum(sizes), rank)}, received {b.shape}. The adapter "
            "belongs to another model.",
            file=file,
        )
    found, start = {}, 0
    for path, (kernel, shapes), size in zip(module.paths, pieces, sizes, strict=True):
        # (out, in, *window) in the file, (*window, in, out) here
        window = np.moveaxis(a, (0, 1), (-1, -2)) if kernel.letters.endswith("io") else a.T
        if window.size != math.prod(shapes["a"]):
            raise FileError(
                f"expected lora_A of {name!r} with {math.prod(shapes['a'])} numbers, received the shape "
                f"{a.shape}. The adapter belongs to another model.",
                file=file,
            )
        weights = {"a": window.reshape(shapes["a"])}
        weights["b"] = b[start : start + size].T.reshape(shapes["b"])
        if magnitudes is not None:
            weights["magnitude"] = magnitudes[start : start + size].reshape(shapes["magnitude"])
        found[path] = _filled(adapter, weights)
        start += size
    return found


def _ia3(
    name: str,
    tensors: Mapping[str, Stored],
    module: _Module,
    inner: Mapping[str, Any],
    settings: AdapterConfig,
    file: str,
) -> dict[str, Adapter]:
    """Returns the adapters of a module with IA3."""
    factors = np.asarray(tensors["ia3_l"].read())
    scales = (
        "inputs" if factors.ndim == 2 and factors.shape[0] == 1 != factors.shape[1] else "outputs"
    )
    adapter = IA3(scales)
    pieces = _pieces(name, module, inner, adapter, file)
    sizes = [math.prod(shapes["factors"]) for _, shapes in pieces]
    parts = [factors.reshape(-1)] * len(sizes)
    if scales == "outputs":
        parts = np.split(factors.reshape(-1), np.cumsum(sizes)[:-1])
    if [part.size for part in parts] != sizes:
        raise FileError(
            f"expected ia3_l of {name!r} with {sum(sizes)} numbers, received the shape {factors.shape}. "
            "The adapter belongs to another model.",
            file=file,
        )
    return {
        path: _filled(adapter, {"factors": part.reshape(shapes["factors"])})
        for path, part, (_, shapes) in zip(module.paths, parts, pieces, strict=True)
    }


def _pieces(
    name: str, module: _Module, inner: Mapping[str, Any], adapter: Adapter, file: str
) -> list[tuple[Kernel, Mapping[str, tuple[int, ...]]]]:
    """Returns kernel and shapes of the weights of the adapter of each layer of a module."""
    pieces = []
    for path, kernel in zip(module.paths, module.kernels, strict=True):
        reason = adapter.refusal(inner[path]) if kernel is not None else "it has no kernel"
        if module.match.weights[0].endswith("reverse_embeddings") or module.match.copy:
            reason = "the logits are computed by the embedding, whose lookup alone can be adapted"
        if kernel is None or reason is not None:
            raise FileError(
                f"the adapter of {name!r} is not supported: {reason}. Merge the adapter in PEFT, and "
                "load the merged model.",
                file=file,
            )
        pieces.append((kernel, adapter.expects(inner[path])))
    return pieces


def _check_base(
    name: str, stored: Stored, module: _Module, inner: Mapping[str, Any], file: str
) -> None:
    """Raises a FileError if the base's own tensor, which PEFT may repeat, differs from the model's."""
    weights = []
    for path, weight in zip(module.paths, module.match.weights, strict=True):
        array = getattr(inner[path], weight.rpartition("/")[2], None)
        weights.append(None if array is None else np.asarray(array))
    if any(weight is None or weight.dtype.kind in "iu" for weight in weights):
        return  # codes are not compared with floats
    (tensor,) = module.match.operation.write_all(tuple(weights))
    received = np.asarray(stored.read())
    if received.shape != tensor.shape or not np.allclose(
        received.astype("float32"), tensor.astype("float32"), rtol=1e-2, atol=1e-6
    ):
        raise FileError(
            f"the file holds weights of the base in {name!r}, which differ from those of the model: the "
            "base was trained or resized too. Merge the adapter in PEFT, and load the merged model.",
            file=file,
        )


def _filled(adapter: Any, weights: Mapping[str, np.ndarray]) -> Any:
    arrays = {name: jax.device_put(np.array(w, "float32")) for name, w in weights.items()}
    return adapter.replace(**arrays, _built=True)


def _keras_adapters(path: str, base: Any, alpha: float | None, limits: Limits) -> dict[str, Any]:
    """Returns the adapters of a `.lora.h5` file of KerasHub, in the order of the targets."""
    targets = [
        (at, layer) for at, layer in sublayers(base) if at.rpartition("/")[2] in _KERAS_TARGETS
    ]
    with open(path, "rb") as file, open_store(file, path, None, limits) as store, reading(path):
        return _read_keras(store, path, targets, alpha)


def _read_keras(store: Any, path: str, targets: list, alpha: float | None) -> dict[str, Any]:
    groups = sorted((g for g in store.groups("lora") if g.isdigit()), key=int)
    if not store.has("lora/rank") or not groups:
        raise FileError(
            "expected the adapters of KerasHub's save_lora_weights: lora/rank, and a group for each "
            "adapted layer. Write the file with backbone.save_lora_weights.",
            file=path,
        )
    rank = int(store.read("lora/rank", ()))
    if len(groups) != len(targets):
        raise FileError(
            f"expected adapters of the {len(targets)} layers of the model named "
            f"{', '.join(_KERAS_TARGETS)}, received {len(groups)} adapters; nothing was loaded. Load the "
            "backbone that was adapted.",
            file=path,
        )
    found = {}
    for group, (at, layer) in zip(groups, targets, strict=True):
        adapter = LoRA(rank, alpha, last_axis=True)
        reason = adapter.refusal(layer)
        if reason is not None:
            raise FileError(f"{at!r} cannot be adapted: {reason}.", file=path)
        shapes = adapter.expects(layer)
        weights = {}
        for name in ("a", "b"):
            weights[name] = store.read(f"lora/{group}/lora_kernel_{name}")
            if weights[name].shape != shapes[name]:
                raise FileError(
                    f"expected lora_kernel_{name} of {at!r} of shape {shapes[name]}, received "
                    f"{weights[name].shape}; nothing was loaded. Load the backbone that was adapted.",
                    file=path,
                )
        found[at] = _filled(adapter, weights)
    return found


@hides_internal_frames
def save_adapter(
    folder: str | os.PathLike[str], model: Model, config: Config, *, base_model: str = ""
) -> None:
    """Writes the adapters of a model as a folder of PEFT.

    `peft.PeftModel.from_pretrained` and serving engines open the folder beside the base. Adapters of
    projections that the checkpoint fuses, such as query, key and value, become one adapter: of the
    same rank where they have the same A, and else of the sum of their ranks.

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
    modules = _modules(base, config)
    owners = {
        path: name
        for name, module in modules.items()
        for path in module.paths
        if not module.match.copy
        and None not in module.kernels
        and not module.match.weights[0].endswith("reverse_embeddings")
    }
    inner = dict(sublayers(base))
    grouped: dict[str, dict[str, Any]] = {}
    for path, adapter in by_path.items():
        layer = inner.get(path)
        if path not in owners or getattr(float_layer(layer), "tie_weights", False):
            why = (
                "has tied weights, which PEFT adapts for the lookup alone"
                if path in owners
                else ("has no tensor of its own in the checkpoint")
            )
            raise ValueError(f"pretrained.save_adapter: {path!r} {why}. Merge its adapter.")
        grouped.setdefault(owners[path], {})[path] = adapter
    kind = kinds.pop()
    arrays: dict[str, np.ndarray] = {}
    settings: dict[str, Any] = {"peft_type": "IA3" if kind is IA3 else "LORA"}
    if kind is IA3:
        arrays, fed = _ia3_arrays(grouped, modules)
        settings["feedforward_modules"] = _targets(fed, modules)
    else:
        ranks, alphas = {}, {}
        stabilized = all(adapter.rank_stabilized for adapter in by_path.values())
        for name, own in grouped.items():
            tensors, ranks[name], scale = _lora_arrays(name, own, modules[name])
            alpha = scale * (math.sqrt(ranks[name]) if stabilized else ranks[name])
            alphas[name] = int(alpha) if float(alpha).is_integer() else alpha
            arrays |= tensors
        rank, alpha = (
            collections.Counter(v.values()).most_common(1)[0][0] for v in (ranks, alphas)
        )
        settings |= {"r": rank, "lora_alpha": alpha, "use_dora": kind is DoRA, "bias": "none"}
        settings |= {"use_rslora": stabilized, "init_lora_weights": True}
        settings["rank_pattern"] = {n: r for n, r in ranks.items() if r != rank}
        settings["alpha_pattern"] = {n: a for n, a in alphas.items() if a != alpha}
        drops = collections.Counter(adapter.dropout for adapter in by_path.values())
        settings["lora_dropout"] = drops.most_common(1)[0][0]
    settings |= {
        "base_model_name_or_path": base_model,
        "fan_in_fan_out": any(_is_transposed(modules[name]) for name in grouped),
        "inference_mode": True,
        "target_modules": _targets(grouped, modules),
        "task_type": "CAUSAL_LM" if "lm_head" in modules else None,
    }
    layout = getattr(config, "layout", None)
    in_file = (lambda name: name) if layout is None else layout.in_file
    named = {f"{_PREFIX}{in_file(name)}": array for name, array in arrays.items()}
    os.makedirs(folder, exist_ok=True)
    with replacing(os.path.join(folder, WEIGHTS)) as file:
        write(file, named, {"format": "pt"})
    with replacing(os.path.join(folder, CONFIG)) as file:
        file.write(written(settings))


def _targets(names: Any, modules: Mapping[str, _Module]) -> list[str]:
    """Returns the last parts of names where all modules with such a name have an adapter, else names."""
    lasts = {name.rpartition(".")[2] for name in names}
    whole = {
        last
        for last in lasts
        if all(
            n in names
            for n in modules
            if n.rpartition(".")[2] == last and None not in modules[n].kernels
        )
    }
    return sorted(whole | {n for n in names if n.rpartition(".")[2] not in whole})


def _is_transposed(module: _Module) -> bool:
    """Whether the tensor is (in, out), as in GPT-2, and not (out, in)."""
    shapes = [kernel.shape for kernel in module.kernels if kernel is not None]
    if module.kernels[0] is None or module.kernels[0].name == "embeddings":
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
    name: str, own: Mapping[str, Any], module: _Module
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
        if kernel.shared or adapter.axes(kernel) != (kernel.inputs, kernel.outputs):
            raise ValueError(
                f"pretrained.save_adapter: the factors of {path!r} span other axes than those of PEFT. "
                "Merge the adapter, or train one with last_axis=False."
            )
        window = tuple(range(2, len(kernel.shape))) if kernel.letters.endswith("io") else ()
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
        b = np.concatenate(rights)
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
    kernel = module.kernels[0]
    assert kernel is not None
    if kernel.name == "embeddings":
        keys = ("lora_embedding_A", "lora_embedding_B")
    else:
        keys = ("lora_A.weight", "lora_B.weight")
    b = b.reshape(*b.shape, *(1 for _ in window))
    arrays = {f"{name}.{keys[0]}": a, f"{name}.{keys[1]}": b}
    if magnitudes:
        arrays[f"{name}.lora_magnitude_vector"] = np.concatenate(magnitudes)
    return arrays, rank, scale


def _ia3_arrays(
    grouped: Mapping[str, Mapping[str, Any]], modules: Mapping[str, _Module]
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
            factors = np.concatenate(parts)[:, None]
        else:
            raise ValueError(
                f"pretrained.save_adapter: the checkpoint fuses {', '.join(modules[name].paths)}: scale "
                "their outputs, not their inputs."
            )
        arrays[f"{name}.ia3_l"] = factors.astype("float32")
    return arrays, fed
