"""Options of layers that Keras's classes do not have, in `.keras` files.

Keras refuses a configuration with an argument that it does not know, and passes over what stands
beside one. So in a file these options stand beside: `{"class_name": "Add", "config": {...},
"fkeras": {"masks": "any"}}`. Keras opens such a file, and computes what its own class computes.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fkeras.engine.values.config_walk import PLAIN
from fkeras.saving.containers.errors import FileError
from fkeras.saving.containers.strict_json import check

_BESIDE = "fkeras"
_MERGES = ("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum", "Concatenate")
#: classes whose queries without a key give zeros here and a mean in Keras: layers, an operation
ATTENTION = (
    "Attention",
    "AdditiveAttention",
    "MultiHeadAttention",
    "GroupQueryAttention",
    "GroupedQueryAttention",
    "DotProductAttention",
)
#: the options of each class, where Keras's file stays right without them for inference
_OPTIONS: Mapping[str, tuple[str, ...]] = types.MappingProxyType(
    {
        "BatchNormalization": ("frozen",),
        **dict.fromkeys(_MERGES, ("masks",)),
        **dict.fromkeys(ATTENTION, ("empty_rows",)),
    }
)
_LAYERS = ("keras.layers", "keras.src.layers")
_OPERATIONS = ("keras.src.ops", "keras.ops")
# large, and without configurations of layers in them
_OTHER = ("inbound_nodes", "build_config", "compile_config", "input_layers", "output_layers")


def changed(config: Any, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> Any:
    """A configuration in which each object, `{"class_name": ..., "config": ...}`, is changed.

    Args:
        config: the configuration of a model.
        change: called with an object whose parts are changed already.
    """
    if type(config) in PLAIN:
        return config
    if isinstance(config, list):
        return [changed(part, change) for part in config]
    if not isinstance(config, Mapping):
        return config
    made = {k: v if k in _OTHER else changed(v, change) for k, v in config.items()}
    whole = isinstance(made.get("class_name"), str) and isinstance(made.get("config"), Mapping)
    return change(made) if whole else made


def is_merge(item: Mapping[str, Any], custom: Iterable[str] = ()) -> bool:
    """Whether an object is one of Keras's layers that merge masks, and no class of the user's."""
    return item["class_name"] in _MERGES and _is_layer(item, custom)


def _is_layer(item: Mapping[str, Any], custom: Iterable[str]) -> bool:
    # an operation, `x + y`, is an "Add" too, of another module
    module = str(item.get("module", "keras.layers"))
    home = _OPERATIONS if item["class_name"] == "DotProductAttention" else _LAYERS
    return item["class_name"] not in custom and module.startswith(home)


def is_attention(item: Mapping[str, Any], custom: Iterable[str] = ()) -> bool:
    """Whether an object is one of Keras's attention layers, or the operation of attention."""
    return item["class_name"] in ATTENTION and _is_layer(item, custom)


def put_beside(config: Mapping[str, Any]) -> Any:
    """The configuration of a model with the options that Keras lacks beside those it has.

    Example:
        >>> put_beside({"class_name": "Add", "config": {"name": "sum", "masks": "any"}})
        {'class_name': 'Add', 'config': {'name': 'sum'}, 'fkeras': {'masks': 'any'}}
    """

    def change(item: Mapping[str, Any]) -> Mapping[str, Any]:
        names = _OPTIONS.get(item["class_name"], ()) if _is_layer(item, ()) else ()
        found = {name: item["config"][name] for name in names if name in item["config"]}
        if not found:
            return item
        rest = {k: v for k, v in item["config"].items() if k not in found}
        return {**item, "config": rest, _BESIDE: found}

    return changed(config, change)


def put_back(config: Mapping[str, Any], file: str | None = None, member: str | None = None) -> Any:
    """The configuration with all options of a layer together, as `put_beside` was given it.

    Raises:
        FileError: where something else than these options stands there.

    Example:
        >>> put_back({"class_name": "Add", "config": {}, "fkeras": {"masks": "any"}})
        {'class_name': 'Add', 'config': {'masks': 'any'}}
    """

    def change(item: Mapping[str, Any]) -> Mapping[str, Any]:
        if _BESIDE not in item:
            return item
        name = item["config"].get("name")
        place = {"file": file, "member": member, "layer": name if isinstance(name, str) else None}
        beside = check(item[_BESIDE], dict, f"the options in {_BESIDE!r}", **place)
        known = _OPTIONS.get(item["class_name"], ())
        for key, value in beside.items():
            if key not in known:
                raise FileError(
                    f"expected {', '.join(known) or 'no option'} in {_BESIDE!r} of a "
                    f"{item['class_name']:.80}, received {key!r:.80}. The file is damaged, or of a "
                    "later version.",
                    **place,
                )
            check(value, str, f"the option {key!r}", **place)
        rest = {k: v for k, v in item.items() if k != _BESIDE}
        return {**rest, "config": {**item["config"], **beside}}

    return changed(config, change)
