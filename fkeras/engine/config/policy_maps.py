"""Keras's dtype policies in JSON form: quantized policies, and maps of policies by layer path."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fkeras.engine.values.annotations import Json
from fkeras.engine.values.pattern_cost import trials

# separates mode and source policy: "int8_from_float32"
_FROM = "_from_"


def quantization(dtype: Json) -> Mapping[str, Any] | None:
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


# resource limit: the steps of `re` for matching all patterns of a map, from a file, with one path
_MOST_TRIALS = 1e6


def policy_map(dtype: Json) -> Mapping[str, Any] | None:
    """Returns the configuration of a DTypePolicyMap in JSON data; None for any other dtype."""
    inner = dtype.get("config", dtype) if isinstance(dtype, Mapping) else None
    return inner if isinstance(inner, Mapping) and "policy_map" in inner else None


def policy_at(dtype: Json, path: str | None) -> Json:
    """Returns the dtype policy for the layer at `path` from a dtype in JSON form.

    The order of precedence: the entry whose key equals the path, the single entry whose regular
    expression matches the whole path, the default policy.

    Args:
        dtype: a name or a policy as JSON data; a value other than a map is returned unchanged.
        path: the names of the enclosing layers and of the layer itself: "attention/query".

    Raises:
        ValueError: if several patterns match, or a pattern can backtrack catastrophically.

    Example:
        >>> policies = {"default_policy": "float32", "policy_map": {"dense.*": "bfloat16"}}
        >>> policy_at({"config": policies}, "dense_1"), policy_at({"config": policies}, "conv")
        ('bfloat16', 'float32')
    """
    config = policy_map(dtype)
    if config is None:
        return dtype
    default, policies = config.get("default_policy") or "float32", config["policy_map"]
    if not isinstance(policies, Mapping):
        raise ValueError(
            f"dtype: expected 'policy_map' as a dictionary of policies by layer path, received "
            f"{type(policies).__name__}. Save the model again."
        )
    if not isinstance(path, str):
        return default
    if path in policies:
        return policies[path]
    # checked before re runs: a match cannot be interrupted
    if sum(trials(str(pattern), len(path)) for pattern in policies) > _MOST_TRIALS:
        raise ValueError(
            f"dtype: a pattern in 'policy_map' can backtrack catastrophically on {path[:80]!r}. "
            "Write patterns without nested quantifiers."
        )
    matches = [pattern for pattern in policies if re.fullmatch(str(pattern), path)]
    if len(matches) > 1:
        raise ValueError(
            f"dtype: expected one pattern in 'policy_map' for {path[:80]!r}, received "
            f"{', '.join(map(repr, matches[:4]))}, which all match. Remove all but one."
        )
    return policies[matches[0]] if matches else default
