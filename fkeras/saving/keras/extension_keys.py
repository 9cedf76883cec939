"""Stores options of layers that Keras's classes do not have in `.keras` files.

Keras rejects unknown keys in a layer's "config", and ignores unknown keys of the object around the
configuration. The options are therefore stored in an extension key of that object:
`{"class_name": "Add", "config": {...}, "fkeras": {"masks": "any"}}`. Keras opens such a file and
computes the layer without the options.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

from fkeras.host.containers.errors import FileError
from fkeras.host.containers.strict_json import check
from fkeras.saving.quirks.layer_configs import ATTENTION, MERGES, change_layers, is_keras_layer

_EXTENSION_KEY = "fkeras"
# options by class that Keras may ignore: its own rules for masks and frozen layers then apply, and
# the file remains valid for inference
_OPTIONS: Mapping[str, tuple[str, ...]] = types.MappingProxyType(
    {
        "BatchNormalization": ("frozen",),
        **dict.fromkeys(MERGES, ("masks",)),
        **dict.fromkeys(ATTENTION, ("empty_rows",)),
    }
)


def put_beside(config: Mapping[str, Any]) -> Any:
    """Moves the options that Keras does not have from "config" to the extension key."""

    def change(item: Mapping[str, Any]) -> Mapping[str, Any]:
        # a custom class of the same name keeps its configuration
        names = _OPTIONS.get(item["class_name"], ()) if is_keras_layer(item) else ()
        extensions = {name: item["config"][name] for name in names if name in item["config"]}
        if not extensions:
            return item
        keras_config = {k: v for k, v in item["config"].items() if k not in extensions}
        return {**item, "config": keras_config, _EXTENSION_KEY: extensions}

    return change_layers(config, change)


def put_back(config: Mapping[str, Any], file: str | None = None, member: str | None = None) -> Any:
    """Moves the options from the extension key back to "config"; the inverse of `put_beside`."""

    def change(item: Mapping[str, Any]) -> Mapping[str, Any]:
        if _EXTENSION_KEY not in item:
            return item
        name = item["config"].get("name")
        place = {"file": file, "member": member, "layer": name if isinstance(name, str) else None}
        options = check(item[_EXTENSION_KEY], dict, f"the options in {_EXTENSION_KEY!r}", **place)
        option_names = _OPTIONS.get(item["class_name"], ())
        # reject unknown options: ignoring an option of a later version would change the outputs
        for key, value in options.items():
            if key not in option_names:
                raise FileError(
                    f"expected {', '.join(option_names) or 'no option'} in {_EXTENSION_KEY!r} of a "
                    f"{item['class_name']:.80}, received {key!r:.80}. The file is damaged, or of a "
                    "later version.",
                    **place,
                )
            check(value, str, f"the option {key!r}", **place)
        other_keys = {k: v for k, v in item.items() if k != _EXTENSION_KEY}
        return {**other_keys, "config": {**item["config"], **options}}

    return change_layers(config, change)
