"""`load_adapter`: adapters of PEFT's folders and of KerasHub's files."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from fkeras.atomic_files.atomic import as_path
from fkeras.authoring.engine import hides_internal_frames, require_layer, set_trainable
from fkeras.authoring.layers import Kernel, Logits, Quantized, adapted_layers, float_layer
from fkeras.authoring.saving import is_finite, warn_not_finite
from fkeras.authoring.transforms import put_in, take_out
from fkeras.engine import Model
from fkeras.host.containers.errors import FileError, reading
from fkeras.host.containers.limits import Limits
from fkeras.host.containers.safetensors import read_table
from fkeras.host.containers.stored import Stored
from fkeras.pretrained.adapter_files.keras_files import read_keras_adapters
from fkeras.pretrained.adapter_files.modules import (
    CONFIG,
    WEIGHTS,
    Module,
    by_module,
    filled,
    has_current_names,
    modules_of,
)
from fkeras.pretrained.adapter_files.peft_config import AdapterConfig, read_config
from fkeras.pretrained.families.table import family_of_config
from fkeras.pretrained.files.folder import read_json
from fkeras.pretrained.tables.config import Config
from fkeras.transforms import IA3, Adapter, DoRA, LoRA, replace_layers


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

    In PEFT, an adapter of the embedding changes only the vectors, and an adapter of the head only the
    logits, also where both have the same weights: the embedding of the result is then not tied. Its
    merged model is saved with `dataclasses.replace(config, tie_word_embeddings=False)`.

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
        >>> adapted = transforms.adapt(model, "block_*/query", transforms.LoRA(2, alpha=4), key)
        >>> folder = tempfile.mkdtemp()
        >>> fk.pretrained.save_adapter(folder, adapted, config)
        >>> fk.pretrained.load_adapter(folder, model, config) == adapted
        True
    """
    require_layer(model, "pretrained.load_adapter")
    path, limits = as_path(path), limits or Limits()
    base = set_trainable(take_out(model)[0], False)
    if not os.path.isdir(path):
        return put_in(base, read_keras_adapters(path, base, alpha, limits))
    if alpha is not None:
        raise ValueError(
            "pretrained.load_adapter: alpha belongs to a .lora.h5 file; adapter_config.json has its own. "
            "Leave it out."
        )
    file = os.path.join(path, CONFIG)
    settings = read_config(read_json(file, limits), file)
    weights = os.path.join(path, WEIGHTS)
    arrays = read_table(weights, limits).arrays
    current = has_current_names(arrays, base, config)
    modules = modules_of(base, config, current)
    parts = by_module(arrays, modules, config, weights)
    base = _untied(base, parts, modules)
    modules = modules_of(base, config, current)
    assert config is not None  # `modules_of` rejects other values
    _check_targets(settings, parts, modules, family_of_config(config).prefix, weights)
    inner = dict(adapted_layers(base))
    warn_not_finite(
        [name for name, stored in arrays.items() if not is_finite(stored.read())], weights
    )
    found: dict[str, Any] = {}
    for name, tensors in parts.items():
        module = modules[name]
        with reading(weights, None, name):
            read = _ia3 if settings.kind == "IA3" else _lora
            found.update(read(name, tensors, module, inner, settings, weights))
    return put_in(base, found)


def _check_targets(
    settings: AdapterConfig,
    parts: Mapping[str, Mapping[str, Stored]],
    modules: Mapping[str, Module],
    prefix: str,
    file: str,
) -> None:
    """Raises a FileError unless the file has the modules that its configuration names, and no others."""
    adapted = {name for name, tensors in parts.items() if set(tensors) != {"base_layer.weight"}}
    # names in adapter_config.json have the prefix, unless the adapted model had no head
    forms = {name: {name, name.removeprefix(prefix)} for name in modules}
    targeted = {n: [settings.targeted(form, file) for form in forms[n]] for n in modules}
    missing = sorted(
        name
        for name, module in modules.items()
        if name not in adapted and None not in module.kernels and all(targeted[name])
    )
    if missing and settings.targets not in (None, "all-linear"):
        raise FileError(
            f"target_modules names {', '.join(missing[:6])}{' ...' if len(missing) > 6 else ''}, and the "
            "file has no adapter of these modules; nothing was loaded. The adapter belongs to another model, "
            "or the file is damaged.",
            file=file,
        )
    other = sorted(name for name in adapted if not any(targeted[name]))
    if other and settings.targets is not None:
        raise FileError(
            f"the file has adapters of {', '.join(other[:6])}{' ...' if len(other) > 6 else ''}, which "
            "target_modules, exclude_modules or layers_to_transform leave out: PEFT does not use them; nothing "
            "was loaded. Correct adapter_config.json.",
            file=file,
        )


def _untied(
    base: Any,
    parts: Mapping[str, Mapping[str, Stored]],
    modules: Mapping[str, Module],
) -> Any:
    """Returns the base with weights of its own for the logits, where vectors or logits are adapted."""
    adapted = [name for name, tensors in parts.items() if set(tensors) != {"base_layer.weight"}]
    paths = {path for n in adapted if modules[n].is_vocabulary for path in modules[n].paths}
    # an encoder without a head has no logits to untie
    paths &= {path for m in modules.values() if m.match.logits for path in m.paths}

    def untie(path: str, layer: Any) -> Any:
        config = float_layer(layer)
        if path not in paths or not getattr(config, "tie_weights", False):
            return None
        if not isinstance(layer, Quantized):
            return layer.replace(tie_weights=False, reverse_embeddings=layer.embeddings.T)
        coded: Any = (
            layer  # a QuantizedEmbedding: codes of both tables are packed along the vectors
        )
        scale, zero = coded.embeddings_scale, coded.embeddings_zero
        return coded.replace(
            layer=config.replace(tie_weights=False),
            reverse_embeddings=coded.embeddings.T,
            reverse_embeddings_scale=scale.T,
            reverse_embeddings_zero=None if zero is None else zero.T.astype(scale.dtype),
        )

    return replace_layers(base, untie)


def _lora(
    name: str,
    tensors: Mapping[str, Stored],
    module: Module,
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
    by_layer = np.argsort(module.order)
    b, magnitudes = b[by_layer], None if magnitudes is None else magnitudes[by_layer]
    found, start = {}, 0
    for path, (kernel, shapes), size in zip(module.paths, pieces, sizes, strict=True):
        # (out, in, *window) in the file, (*window, in, out) here
        window = np.moveaxis(a, (0, 1), (-1, -2)) if kernel.is_window else a.T
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
        found[path] = filled(adapter, weights)
        start += size
    return found


def _ia3(
    name: str,
    tensors: Mapping[str, Stored],
    module: Module,
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
        by_layer = np.argsort(module.order) if factors.size == sum(sizes) else slice(None)
        parts = np.split(factors.reshape(-1)[by_layer], np.cumsum(sizes)[:-1])
    if [part.size for part in parts] != sizes:
        raise FileError(
            f"expected ia3_l of {name!r} with {sum(sizes)} numbers, received the shape {factors.shape}. "
            "The adapter belongs to another model.",
            file=file,
        )
    return {
        path: filled(adapter, {"factors": part.reshape(shapes["factors"])})
        for path, part, (_, shapes) in zip(module.paths, parts, pieces, strict=True)
    }


def _pieces(
    name: str, module: Module, inner: Mapping[str, Any], adapter: Adapter, file: str
) -> list[tuple[Kernel, Mapping[str, tuple[int, ...]]]]:
    """Returns kernel and shapes of the weights of the adapter of each layer of a module."""
    pieces = []
    for path, kernel in zip(module.paths, module.kernels, strict=True):
        reason = "PEFT does not adapt this weight, or only one of the modules that share it"
        if kernel is not None:
            reason = adapter.refusal(inner[path])
        if kernel is None or reason is not None:
            raise FileError(
                f"the adapter of {name!r} is not supported: {reason}. Merge the adapter in PEFT, and "
                "load the merged model.",
                file=file,
            )
        pieces.append((kernel, adapter.expects(inner[path])))
    return pieces


def _check_base(
    name: str, stored: Stored, module: Module, inner: Mapping[str, Any], file: str
) -> None:
    """Raises a FileError if the base's own tensor, which PEFT may repeat, differs from the model's."""
    weights = []
    for path, weight in zip(module.paths, module.match.weights, strict=True):
        layer = inner[path].layer if isinstance(inner[path], Logits) else inner[path]
        array = getattr(layer, weight.rpartition("/")[2], None)
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
