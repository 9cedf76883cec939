"""Changes layers in the configuration of a model; lists the layers that quirks concern."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any

from fkeras.engine.values.config_walk import PLAIN
from fkeras.host.containers.strict_json import ParsedJson

# layers that merge several inputs and their masks
MERGES = ("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum", "Concatenate")
# attention layers, and the operation `dot_product_attention`
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
# large entries without configurations of layers: skipped for speed
_SKIPPED = ("inbound_nodes", "build_config", "compile_config", "input_layers", "output_layers")


def change_layers(
    config: ParsedJson, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]
) -> Any:
    """Applies a change to each object, `{"class_name": ..., "config": ...}`, of a configuration.

    Args:
        change: function from an object to the changed object; inner objects change first.
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
    """Returns whether an object is a merging layer of Keras, not a custom class of that name."""
    return item["class_name"] in MERGES and is_keras_layer(item, custom)


def is_attention(item: Mapping[str, Any], custom: Container[str] = ()) -> bool:
    """Returns whether an object is an attention layer or the attention operation of Keras."""
    return item["class_name"] in ATTENTION and is_keras_layer(item, custom)


def is_keras_layer(item: Mapping[str, Any], custom: Container[str] = ()) -> bool:
    """Returns whether an object is a class of Keras's modules and not a custom class."""
    # the module matters: the operation `x + y` has the class name "Add" too
    module = str(item.get("module", "keras.layers"))
    home = _OPERATIONS if item["class_name"] == "DotProductAttention" else _LAYERS
    return item["class_name"] not in custom and module.startswith(home)
