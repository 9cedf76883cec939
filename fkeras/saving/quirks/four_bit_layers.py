"""Layers of 4 bits as they compute in Keras 3.11 to 3.13, by the version that wrote a file.

They code their inputs too. Keras 3.11 and 3.12 do not say so, and the same policy means inputs of
floats since 3.14.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fkeras.engine.config.quantized_policy import quantization
from fkeras.engine.config.serialization import serialize
from fkeras.quantizers import AbsMaxQuantizer, Int4QuantizationConfig
from fkeras.saving.quirks.extension_keys import changed


def quantized_as_in(version: str, config: Any) -> Any:
    """The configuration of a model of Keras 3 whose layers of 4 bits say what they do with inputs.

    Args:
        version: the version of Keras, such as "3.12.0".
        config: the configuration.

    Example:
        >>> dense = {"class_name": "Dense", "config": {"dtype": "int4_from_float32"}}
        >>> quantized_as_in("3.15.1", dense) == dense
        True
        >>> quantized_as_in("3.12.0", dense)["config"]["quantization_config"]["class_name"]
        'Int4QuantizationConfig'
    """
    found = re.match(r"3\.(\d{1,4})", version)
    if found is None or int(found[1]) >= 14:
        return config
    inputs_too = serialize(Int4QuantizationConfig(None, AbsMaxQuantizer(), None))

    def change(item: Mapping[str, Any]) -> Mapping[str, Any]:
        inner = item["config"]
        policy = quantization(inner.get("dtype")) or {}
        if policy.get("mode") != "int4" or inner.get("quantization_config") is not None:
            return item
        return {**item, "config": {**inner, "quantization_config": inputs_too}}

    return changed(config, change)
