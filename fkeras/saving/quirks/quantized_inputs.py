"""Quirk: until Keras 3.13, layers with 4-bit weights also quantize their inputs.

Files of Keras 3.11 and 3.12 do not record this, and the same dtype policy has float inputs since
3.14.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fkeras.engine.config.policy_maps import quantization
from fkeras.engine.config.serialization import serialize
from fkeras.host.containers.strict_json import ParsedJson
from fkeras.quantizers import AbsMaxQuantizer, Int4QuantizationConfig
from fkeras.saving.quirks.layer_configs import change_layers
from fkeras.saving.quirks.origin import Origin


def with_quantized_inputs(
    config: ParsedJson, origin: Origin, custom: frozenset[str] = frozenset()
) -> Any:
    """Adds an input quantizer to all 4-bit layers without a quantization configuration.

    Example:
        >>> dense = {"class_name": "Dense", "config": {"dtype": "int4_from_float32"}}
        >>> changed = with_quantized_inputs(dense, Origin((3, 12, 0)))
        >>> changed["config"]["quantization_config"]["class_name"]
        'Int4QuantizationConfig'
    """
    quantized_inputs = serialize(Int4QuantizationConfig(None, AbsMaxQuantizer(), None))

    def change(item: Mapping[str, Any]) -> Mapping[str, Any]:
        layer_config = item["config"]
        policy = quantization(layer_config.get("dtype")) or {}
        if policy.get("mode") != "int4" or layer_config.get("quantization_config") is not None:
            return item
        return {**item, "config": {**layer_config, "quantization_config": quantized_inputs}}

    return change_layers(config, change)
