"""Keras's dtype policies of quantized layers, told from those of floats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# what stands between the mode and the policy of the floats in the name of a policy
_FROM = "_from_"


def quantization(dtype: Any) -> Mapping[str, Any] | None:
    """What a dtype says of quantization: its `mode` and `source_name`; None for one of floats.

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
