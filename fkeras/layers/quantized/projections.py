"""Quantized projections of attention layers, and their representation in Keras's files.

Keras represents the quantization as a map of dtype policies by the paths of the inner layers.
"""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from typing import Any

from fkeras.engine.config.policy_maps import policy_at, quantization
from fkeras.engine.config.serialization import serialize
from fkeras.layers.common import authoring as fk
from fkeras.quantizers import get, policy_config

# fields of the projections, and the names of their layers in Keras
_NAMES: Mapping[str, str] = types.MappingProxyType(
    {
        "query_dense": "query",
        "key_dense": "key",
        "gate_dense": "gate",
        "value_dense": "value",
        "output_dense": "attention_output",
    }
)


def quantization_of(value: fk.Field) -> fk.FrozenDict | None:
    """Converts a configuration for all projections, or a dictionary, to one configuration each."""
    if value is None:
        return None
    modes = value if isinstance(value, Mapping) else dict.fromkeys(_NAMES, value)
    unknown = next((name for name in modes if name not in _NAMES), None)
    if unknown is not None:
        raise ValueError(
            f"quantization: expected projections among {', '.join(_NAMES)}, received {unknown!r}. "
            "Give a mode for each, such as {'query_dense': 'int8'}, or one for all: 'int8'."
        )
    return fk.FrozenDict({name: get(config) for name, config in modes.items()})


def dtypes_of(value: fk.Field) -> fk.FrozenDict | None:
    """Converts a dictionary to dtype policies by projection.

    Example:
        >>> dtypes_of({"query_dense": "bfloat16"})["query_dense"].name
        'bfloat16'
    """
    if value is None:
        return None
    if not isinstance(value, Mapping) or any(name not in _NAMES for name in value):
        raise ValueError(
            f"projection_dtypes: expected dtype policies by projections among "
            f"{', '.join(_NAMES)}, received {value!r:.80}. For example: "
            "{'query_dense': 'mixed_bfloat16'}."
        )
    return fk.FrozenDict({name: fk.get_policy(policy) for name, policy in value.items()}) or None


def policy_map(
    where: str,
    name: str | None,
    dtype: fk.DTypePolicy,
    configs: Mapping[str, Any],
    dtypes: Mapping[str, fk.DTypePolicy],
) -> dict:
    """Returns the dtype policies of an attention layer and its projections in Keras's format.

    Raises:
        ValueError: for a configuration other than the default of its policy.
    """
    policies = {}
    # Keras's map stores only policy names, which imply the default configuration of a mode
    for field, config in configs.items():
        if policy_config(config.policy("float32")["config"]) != config and config.mode not in (
            "gptq",
            "awq",
        ):
            raise ValueError(
                f"{where}: expected projections with the default quantizers of "
                f"{config.policy_mode!r}, received {config!r}. Keras's files store only the mode: "
                f"quantize with {config.policy_mode!r}, or exclude the projections by `pattern`."
            )
        # a pattern, because the path starts with the names of the enclosing models
        layer_pattern = "[^/]+" if name is None else re.escape(name)
        source = dtypes.get(field, dtype).name
        policies[f"(.*/)?{layer_pattern}/{_NAMES[field]}"] = config.policy(source)
    layer_pattern = "[^/]+" if name is None else re.escape(name)
    for field, policy in dtypes.items():
        if field not in configs:
            policies[f"(.*/)?{layer_pattern}/{_NAMES[field]}"] = serialize(policy)
    return {
        "module": "keras.dtype_policies",
        "class_name": "DTypePolicyMap",
        "config": {"default_policy": dtype.get_config()["name"], "policy_map": policies},
        "registered_name": None,
    }


def read_policy_map(kind: str, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Replaces a map of quantized policies in a config by `quantization`.

    Raises:
        ValueError: for a policy of a layer that is not a projection.
    """
    dtype = config.get("dtype")
    inner = dtype.get("config") if isinstance(dtype, Mapping) else None
    policies = inner.get("policy_map") if isinstance(inner, Mapping) else None
    if inner is None or not isinstance(policies, Mapping):
        return config
    if not any(map(quantization, policies.values())):
        return _read_float_map(config)
    fields = {name: field for field, name in _NAMES.items()}
    configs, sources = {}, {inner.get("default_policy") or "float32"}
    for path, policy in policies.items():
        quantized = quantization(policy)
        last = str(path).rpartition("/")[2]
        field_names = [fields[last]] if last in fields else list(_NAMES) if last == ".*" else []
        if quantized is None or not field_names:
            raise ValueError(
                f"{kind}.from_config: expected policies of the projections "
                f"{', '.join(fields)}, all quantized, received {path!s:.80} in the map. Give "
                "each layer its own dtype before the model is saved."
            )
        configs |= dict.fromkeys(field_names, policy_config(quantized))
        sources.add(quantized.get("source_name") or "float32")
    if len(sources) > 1:
        raise ValueError(
            f"{kind}.from_config: expected one float policy in the map, received "
            f"{', '.join(sorted(map(str, sources)))}. Save the model with a single float policy."
        )
    return {**config, "dtype": sources.pop(), "quantization": configs}


def _read_float_map(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Replaces a map of float policies in a config by `projection_dtypes`."""
    dtype, name = config["dtype"], config.get("name")
    layer_dtype = policy_at(dtype, name)
    dtypes = {field: policy_at(dtype, f"{name}/{last}") for field, last in _NAMES.items()}
    if not config.get("use_gate"):
        del dtypes["gate_dense"]
    own = fk.get_policy(layer_dtype)
    differing = {field: dtype for field, dtype in dtypes.items() if fk.get_policy(dtype) != own}
    return {**config, "dtype": layer_dtype, "projection_dtypes": differing or None}
