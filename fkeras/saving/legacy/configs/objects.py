"""Converts initializers, regularizers, constraints, activations and dtypes of old configurations.

The result is Keras 3's form with module names from this package: module names in a file are
ignored, so a file cannot name code to import.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from fkeras import activations, constraints, initializers, regularizers
from fkeras.authoring.engine import custom_code, public_names
from fkeras.authoring.saving import Origin
from fkeras.engine import Configurable, suggest
from fkeras.host.containers.strict_json import ParsedJson, check, field

#: name of Keras 2's hard sigmoid in converted configurations
HARD_SIGMOID = "keras2_hard_sigmoid"

_LIBRARIES = types.MappingProxyType(
    {"initializer": initializers, "regularizer": regularizers, "constraint": constraints}
)
_OLD_NAMES = types.MappingProxyType(
    {
        "GlorotUniformV2": "GlorotUniform",
        "ZerosInitializer": "Zeros",
        "uniform": "RandomUniform",
        "normal": "RandomNormal",
        "Zero": "Zeros",
        "One": "Ones",
        "MaxNormV2": "MaxNorm",
        "UnitNormV2": "UnitNorm",
        "WeightRegularizer": "L1L2",
        "L1L2Regularizer": "L1L2",
        "maxnorm": "MaxNorm",
        "max_norm": "MaxNorm",
        "nonneg": "NonNeg",
        "non_neg": "NonNeg",
        "unitnorm": "UnitNorm",
        "unit_norm": "UnitNorm",
        "min_max_norm": "MinMaxNorm",
        "l1": "L1",
        "l2": "L2",
        "l1l2": "L1L2",
        "l1_l2": "L1L2",
    }
)
_OLD_ACTIVATIONS = types.MappingProxyType(
    {"softmax_v2": "softmax", "relu_v2": "relu", "swish": "silu", "hard_swish": "hard_silu"}
)
#: keys that tf.keras writes and that do not change the values
_SILENT = ("dtype", "partitioner", "verify_shape")


def part(
    kind: str,
    value: ParsedJson,
    origin: Origin,
    layer: str | None,
    custom_objects: Mapping[str, Any],
) -> Any:
    """Returns an initializer, regularizer or constraint in Keras 3's form.

    Args:
        kind: "initializer", "regularizer" or "constraint".
    """
    if value is None:
        return None
    where = origin.place(layer)
    # Keras 1 wrote {"name": ..., arguments} instead of {"class_name": ..., "config": ...}.
    if isinstance(value, Mapping) and "class_name" not in value and "name" in value:
        options = {k: v for k, v in value.items() if k != "name"}
        value = {"class_name": value["name"], "config": options}
    if isinstance(value, str):
        name, config = value, {}
    else:
        name = field(check(value, dict, f"the {kind}", **where), "class_name", str, **where)
        config = field(value, "config", (dict, type(None)), None, **where) or {}
    if name in custom_objects:
        # The user's class keeps its configuration: only the user knows its arguments.
        return {"class_name": name, "config": dict(config)}
    library = _LIBRARIES[kind]
    component = getattr(library, _OLD_NAMES.get(name, name), None)
    # `getattr` finds any attribute that the file names: accept only configurable classes.
    if not (isinstance(component, type) and issubclass(component, Configurable)):
        component = _class_by_name(library, _OLD_NAMES.get(name, name))
    if component is None:
        raise origin.error(
            f"expected the name of an {kind} of Keras, received {name!r:.80}."
            f"{suggest(name, public_names(library))} Pass a custom {kind} by {custom_code(name)}.",
            layer,
        )
    return {
        "module": f"keras.{kind}s",
        "class_name": component.__name__,
        "config": _convert_options(component.__name__, config),
        "registered_name": None,
    }


def _class_by_name(library: ModuleType, name: str) -> Any:
    """Returns the class for a name such as "glorot_uniform"."""
    lower_name = name.replace("_", "").lower()
    for public_name in public_names(library):
        candidate = getattr(library, public_name)
        if (
            isinstance(candidate, type)
            and public_name.lower() == lower_name
            and issubclass(candidate, Configurable)
        ):
            return candidate
    return None


def _convert_options(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    options = {k: v for k, v in config.items() if k not in _SILENT}
    # Keras 2 drew truncated samples under the word "normal".
    if name == "VarianceScaling" and options.get("distribution") == "normal":
        options["distribution"] = "truncated_normal"
    if name == "MaxNorm" and "m" in options:
        options["max_value"] = options.pop("m")
    if name == "Identity" and config.get("gain") is None:
        options.pop("gain", None)
    if name == "Orthogonal" and "scale" in options:
        options["gain"] = options.pop("scale")
    return options


def activation(
    value: ParsedJson, origin: Origin, layer: str | None, custom_objects: Mapping[str, Any]
) -> Any:
    """Returns the Keras 3 name of an activation; Keras 2's hard sigmoid has a separate name."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        name = field(value, "class_name", str, **origin.place(layer))
        if name == "function" and isinstance(value.get("config"), str):
            name = value["config"]
        value = name
    old_name = check(value, str, "the activation", **origin.place(layer))
    if old_name in custom_objects:
        return old_name
    if old_name == "hard_sigmoid" and origin.major < 3:
        return HARD_SIGMOID
    name = _OLD_ACTIVATIONS.get(old_name, old_name)
    try:
        activations.get(name)
    except ValueError as error:
        raise origin.error(
            f"expected the name of an activation, received {old_name!r:.80}."
            f"{suggest(old_name, public_names(activations))} Pass a custom function by "
            f"{custom_code(old_name, 'the_function')}.",
            layer,
        ) from error
    return name


def dtype(value: ParsedJson, origin: Origin, layer: str | None) -> str | None:
    """Returns the name of a dtype policy from a name or a policy's configuration."""
    if isinstance(value, Mapping):
        config = field(value, "config", dict, **origin.place(layer))
        value = field(config, "name", (str, type(None)), None, **origin.place(layer))
    if value is None or value in ("_infer", "infer"):
        return None
    name = check(value, str, "the dtype", **origin.place(layer))
    # Keras 2 also wrote the dtype of a layer's input here, such as int32 for an Embedding.
    return None if name.startswith(("int", "uint", "bool", "string")) else name
