"""What Keras's files do not say of quantized layers, told from the arrays in them.

Keras quantizes the projections of an attention and notes nothing of it in the attention's
configuration, so that it cannot open such a file itself. And Keras 3.15 leaves the zeros out where
it saves what GPTQ and AWQ made, which it cannot open either.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from fkeras.engine import replace_layers
from fkeras.engine.weights import sublayers
from fkeras.layers.attention.projected import PROJECTIONS, ProjectedAttention
from fkeras.layers.core.einsum_dense import EinsumDense
from fkeras.layers.quantized import QuantizedDense
from fkeras.layers.quantized.base import Quantized
from fkeras.quantizers import (
    AWQConfig,
    Float8QuantizationConfig,
    GPTQConfig,
    Int4QuantizationConfig,
    Int8QuantizationConfig,
)
from fkeras.saving.errors import FileError
from fkeras.saving.places import Groups, places, walk_groups

_METERS = 6


def with_stored_codes(model: Any, store: Any, groups: Groups) -> Any:
    """A model of shapes whose attentions have quantized projections where the file has codes.

    Args:
        model: the model of shapes.
        store: the file.
        groups: finds the groups of layers in a list.
    """
    found: dict[str, dict[str, Any]] = {}
    told = {  # Keras quantizes all layers of a model alike
        layer.quantization.policy_mode: layer.quantization
        for _, layer in sublayers(model)
        if isinstance(layer, Quantized)
    }
    for group, keys, layer in walk_groups(model, groups):
        if isinstance(layer, ProjectedAttention) and layer.quantization is None:
            configs = {}
            for name in PROJECTIONS:
                child = getattr(layer, name)
                at = f"{group}/{layer.stored_at.get(name, name)}/vars"
                if type(child) is EinsumDense and store.has(at):
                    configs[name] = _config_of(child, store, at)
            found["/".join(keys)] = {
                name: told.get(config.policy_mode, config)
                for name, config in configs.items()
                if config is not None
            }
    if not any(found.values()):
        return model

    def coded(path: str, layer: Any) -> Any:
        configs = found.get(path)
        if not configs:
            return None
        children = {
            name: jax.eval_shape(lambda c, q=config: QuantizedDense.of(c, q), getattr(layer, name))
            for name, config in configs.items()
        }
        return layer.replace(quantization=configs, **children)

    return replace_layers(model, coded)


def _config_of(layer: Any, store: Any, at: str) -> Any:
    """How a projection was quantized, by its arrays; None where it was not."""
    count = len(store.datasets(at))
    plain = 1 if layer.bias is None else 2
    first = f"{at}/0"
    if count <= plain or not store.has(first):
        return None
    if np.dtype(store.dtype(first)).kind == "f":
        history = f"{at}/{plain + 1}"
        known = count == plain + _METERS and store.has(history) and len(store.shape(history)) == 1
        return Float8QuantizationConfig(store.shape(history)[0]) if known else None
    if np.dtype(store.dtype(first)) != np.int8:
        return None
    if tuple(store.shape(first)) == tuple(layer.kernel.shape):
        return Int8QuantizationConfig()
    if count == plain + 1:
        return Int4QuantizationConfig(block_size=None)
    index = f"{at}/{plain + 2}"
    if not store.has(index) or len(store.shape(index)) != 1:
        return None
    groups = store.read(index, tuple(store.shape(index)))
    size, usual = max(1, int(np.sum(groups == 0))), Int4QuantizationConfig()
    # where one block holds all, its size cannot be told
    return (
        usual
        if len(groups) == size <= usual.block_size
        else Int4QuantizationConfig(None, None, size)
    )


def lost_zeros(
    model: Any, state: Mapping[str, Any], store: Any, groups: Groups
) -> dict[str, str | np.ndarray]:
    """Where arrays stand in a file of which Keras left the zeros out, and the zeros, by path.

    Zeros of symmetric codes are the middle; others are gone.

    Raises:
        FileError: where the zeros are gone.
    """
    found: dict[str, str | np.ndarray] = {}
    for group, keys, layer in walk_groups(model, groups):
        config = layer.quantization if isinstance(layer, QuantizedDense) else None
        if not isinstance(config, GPTQConfig | AWQConfig):
            continue
        own = {p.name.rpartition("/")[2]: p for p in places(layer, {}, groups)}
        at = f"{group}/" if group else ""
        last = f"{at}{list(own.values())[-1].path}"
        if store.has(last) or not store.has(last.rpartition("/")[0]):
            continue
        if not getattr(config, "symmetric", False):
            raise FileError(
                f"expected the zeros of the codes of {config.policy_mode!r}, received a file of a "
                "version of Keras that leaves them out (3.15), without which nobody can tell the "
                "weights. Quantize with symmetric=True, or save with another version.",
                file=store.file,
                member=store.member,
                layer="/".join(keys) or None,
            )
        zero = own["kernel_zero"]
        middle = 1 << (config.weight_bits - 1)
        behind = False
        for place in own.values():
            number = int(str(place.path).rpartition("/")[2])
            if behind:
                found[f"{at}{place.path}"] = f"{at}vars/{number - 1}"
            if place is zero:
                behind = True
                found[f"{at}{place.path}"] = np.full(zero.value.shape, middle, "uint8")
    return found
