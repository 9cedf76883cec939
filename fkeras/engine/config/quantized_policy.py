"""Recognition of Keras's dtype policies for quantized layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# separates mode and source policy: "int8_from_float32"
_FROM = "_from_"


def quantization(dtype: Any) -> Mapping[str, Any] | None:
    """Returns `mode` and `source_name` of a quantized dtype policy; None for any other dtype.

    Args:
        dtype: a name, or a policy as JSON data.

    Example:
        >>> quantization("int8_from_mixed_bfloat16")
        {'mode': 'int8', 'source_name': 'mixed_bfloat16'}
        >>> quantization("float32")
    """
    if isinstance(dtype, Mapping):
        config = dtype.get("config", dtype)
        if not isinstance(config, Mapping):
            return quantization(config)
        return config if "mode" in config else quantization(config.get("name"))
    if isinstance(dtype, str) and _FROM in dtype:
        mode, _, source = dtype.partition(_FROM)
        return {"mode": mode, "source_name": source}
    return None
