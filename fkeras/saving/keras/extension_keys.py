"""Options of layers that Keras's classes do not have, in `.keras` files.

Keras refuses a configuration with an argument that it does not know, and passes over what stands
beside one. So in a file these options stand beside: `{"class_name": "Add", "config": {...},
"fkeras": {"masks": "any"}}`. Keras opens such a file, and computes what its own class computes.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

from fkeras.saving.containers.errors import FileError
from fkeras.saving.containers.strict_json import check
from fkeras.saving.quirks.layer_configs import ATTENTION, MERGES, change_layers, is_keras_layer

_BESIDE = "fkeras"
#: options of each class without which Keras's file stays right for inference
_OPTIONS: Mapping[str, tuple[str, ...]] = types.MappingProxyType(
    {
        "BatchNormalization": ("frozen",),
        **dict.fromkeys(MERGES, ("masks",)),
        **dict.fromkeys(ATTENTION, ("empty_rows",)),
    }
)


def put_beside(config: Mapping[str, Any]) -> Any:
    """The configuration of a model with the options that Keras lacks beside those it has.

    Example:
        >>> put_beside({"class_name": "Add", "config": {"name": "sum", "masks": "any"}})
        {'class_name': 'Add', 'config': {'name': 'sum'}, 'fkeras': {'masks': 'any'}}
    """

    def change(item: Mapping[str, Any]) -> Mapping[str, Any]:
        names = _OPTIONS.get(item["class_name"], ()) if is_keras_layer(item) else ()
        found = {name: item["config"][name] for name in names if name in item["config"]}
        if not found:
            return item
        rest = {k: v for k, v in item["config"].items() if k not in found}
        return {**item, "config": rest, _BESIDE: found}

    return change_layers(config, change)


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

    return change_layers(config, change)
