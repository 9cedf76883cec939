"""Adapters of Keras's layers in `.keras` files: the keys `lora_rank` and `lora_alpha` of a layer.

Keras writes the kernel with the product of the factors and leaves the factors out. A layer with these
keys therefore opens as a frozen layer with the merged kernel, and a new adapter of the same rank and
scale, whose B is zero. Keras itself opens such a layer with two factors of zeros, which training never
changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax

from fkeras.engine import Network
from fkeras.engine.tree.sublayers import sublayers
from fkeras.engine.tree.walk import join_path
from fkeras.engine.tree.weights import subkey
from fkeras.layers.adapters.kernels import kernel_of
from fkeras.layers.adapters.low_rank import LoRA
from fkeras.transforms.adapting.places import put_in


def with_fresh_adapters(model: Network, config: Mapping[str, Any]) -> Network:
    """Returns a model whose layers with the keys of LoRA are frozen and have new adapters.

    Frozen layers, and layers that no adapter changes, stay as they are.

    Args:
        model: the model of the configuration, with its weights.
        config: the configuration as the file holds it.

    Raises:
        ValueError: for a rank larger than the kernel, which would allocate more than the file holds.
    """
    if not model.built:
        return model
    keys = dict(_lora_keys(config))
    adapters = {}
    for path, layer in sublayers(model) if keys else ():
        rank, alpha = keys.get(path, (None, None))
        if rank is None or not layer.trainable:
            continue
        adapter = LoRA(rank, alpha, last_axis=True)
        kernel = kernel_of(layer)
        if kernel is None or adapter.refusal(layer) is not None:
            continue
        if rank > max(kernel.shape):
            raise ValueError(
                f"{path!r}: expected a lora_rank of at most {max(kernel.shape)}, the largest axis of the "
                f"kernel, received {rank}. The file is damaged."
            )
        adapters[path] = adapter.fitted(subkey(jax.random.key(0), path), layer)
    return put_in(model, adapters) if adapters else model


def _lora_keys(item: Any, path: str = "") -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yields path, rank and alpha of each layer with the keys, from the object of a layer."""
    config = item.get("config") if isinstance(item, Mapping) else None
    if not isinstance(config, Mapping):
        return
    if config.get("lora_rank") is not None:
        yield path, (config["lora_rank"], config.get("lora_alpha"))
    layers = config.get("layers")
    for inner in layers if isinstance(layers, list) else ():
        inner_config = inner.get("config") if isinstance(inner, Mapping) else None
        name = inner_config.get("name") if isinstance(inner_config, Mapping) else None
        if isinstance(name, str):
            yield from _lora_keys(inner, join_path(path, name))
    for key in ("layer", "forward_layer", "backward_layer"):  # of wrappers
        yield from _lora_keys(config.get(key), join_path(path, key))
