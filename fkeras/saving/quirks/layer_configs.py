"""Changes to the layers in a model's configuration, and the groups of layers that quirks concern."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any

from fkeras.engine.values.config_walk import PLAIN

#: layers that merge several inputs, and their masks
MERGES = ("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum", "Concatenate")
#: layers of attention, and the operation `dot_product_attention`
ATTENTION = (
    "Attention",
    "AdditiveAttention",
    "MultiHeadAttention",
    "GroupQueryAttention",
    "GroupedQueryAttention",
    "DotProductAttention",
)
_LAYERS = ("keras.layers", "keras.src.layers")
_OPERATIONS = ("keras.src.ops", "keras.ops")
# large entries that hold no configurations of layers
_SKIPPED = ("inbound_nodes", "build_config", "compile_config", "input_layers", "output_layers")


def change_layers(config: Any, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> Any:
    """Returns a configuration with each object, `{"class_name": ..., "config": ...}`, changed.

    Args:
        config: configuration of a model.
        change: called with each object, after the objects inside it have been changed.
    """
    if type(config) in PLAIN:
        return config
    if isinstance(config, list):
        return [change_layers(part, change) for part in config]
    if not isinstance(config, Mapping):
        return config
    item = {k: v if k in _SKIPPED else change_layers(v, change) for k, v in config.items()}
    is_object = isinstance(item.get("class_name"), str) and isinstance(item.get("config"), Mapping)
    return change(item) if is_object else item


def is_merge(item: Mapping[str, Any], custom: Container[str] = ()) -> bool:
    """Whether an object is a merging layer of Keras, not a custom class of the same name."""
    return item["class_name"] in MERGES and is_keras_layer(item, custom)


def is_attention(item: Mapping[str, Any], custom: Container[str] = ()) -> bool:
    """Whether an object is an attention layer of Keras, or the operation of attention."""
    return item["class_name"] in ATTENTION and is_keras_layer(item, custom)


def is_keras_layer(item: Mapping[str, Any], custom: Container[str] = ()) -> bool:
    """Whether the module of an object is Keras's, and the name is not that of a custom class."""
    # the operation `x + y` is an "Add" too, of another module than the layer
    module = str(item.get("module", "keras.layers"))
    home = _OPERATIONS if item["class_name"] == "DotProductAttention" else _LAYERS
    return item["class_name"] not in custom and module.startswith(home)
