"""Keras's maps of dtype policies by layer path, resolved to the policy of one layer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fkeras.engine.values.pattern_cost import trials

# the characters that `re` may look at while the patterns of one map meet one path
_MOST_TRIALS = 1e6


def policy_map(dtype: Any) -> Mapping[str, Any] | None:
    """The configuration of a DTypePolicyMap as JSON data; None for any other dtype.

    Example:
        >>> policy_map({"config": {"default_policy": "float32", "policy_map": {}}})
        {'default_policy': 'float32', 'policy_map': {}}
        >>> policy_map("float32")
    """
    inner = dtype.get("config", dtype) if isinstance(dtype, Mapping) else None
    return inner if isinstance(inner, Mapping) and "policy_map" in inner else None


def policy_at(dtype: Any, path: Any) -> Any:
    """The policy that a dtype as JSON data gives to the layer at `path`.

    An entry of the map under the path itself comes first, then the only entry whose regular
    expression matches all of the path, then the default policy.

    Args:
        dtype: a name or a policy as JSON data; anything but a map is returned unchanged.
        path: the layer's name, after the names of the layers around it: "attention/query".

    Raises:
        ValueError: where several patterns match, or a pattern can backtrack catastrophically.

    Example:
        >>> policies = {"default_policy": "float32", "policy_map": {"dense.*": "bfloat16"}}
        >>> policy_at({"config": policies}, "dense_1"), policy_at({"config": policies}, "conv")
        ('bfloat16', 'float32')
    """
    found = policy_map(dtype)
    if found is None:
        return dtype
    default, policies = found.get("default_policy") or "float32", found["policy_map"]
    if not isinstance(policies, Mapping):
        raise ValueError(
            f"dtype: expected 'policy_map' as a dictionary of policies by layer path, received "
            f"{type(policies).__name__}. Save the model again."
        )
    if not isinstance(path, str):
        return default
    if path in policies:
        return policies[path]
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
