"""Quirk: in Keras 3, `trainable=False` in a constructor does not freeze the layers inside.

`TimeDistributed(layer, trainable=False)`, `RNN(cell, trainable=False)` and models train their inner
layers in Keras 3; only an assignment, `layer.trainable = False`, also freezes them. A file stores
the flag of each layer, and Keras passes these flags to constructors again, so the flags of the
innermost layers decide. Here, a frozen layer freezes the layers inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fkeras.engine.values.config_walk import PLAIN
from fkeras.saving.quirks.layer_configs import change_layers
from fkeras.saving.quirks.origin import Origin


def with_trained_children(config: Any, origin: Origin, custom: frozenset[str] = frozenset()) -> Any:
    """Sets `trainable=True` in frozen layers and models that contain a trained layer.

    Args:
        config: configuration of the model.
        origin: the program that wrote the file.
        custom: names of the user's classes.

    Example:
        >>> inner = {"class_name": "Dense", "config": {"units": 2, "trainable": True}}
        >>> outer = {"class_name": "TimeDistributed", "config": {"trainable": False, "layer": inner}}
        >>> with_trained_children(outer, Origin((3, 15)))["config"]["trainable"]
        True
    """

    def change(item: Mapping[str, Any]) -> Mapping[str, Any]:
        options = item["config"]
        if item["class_name"] in custom or options.get("trainable") is not False:
            return item
        if not any(_trains(value) for value in options.values()):
            return item
        return {**item, "config": {**options, "trainable": True}}

    return change_layers(config, change)


def _trains(value: Any) -> bool:
    if type(value) in PLAIN:
        return False
    if isinstance(value, list):
        return any(map(_trains, value))
    if not isinstance(value, Mapping):
        return False
    options = value.get("config")
    if not isinstance(value.get("class_name"), str) or not isinstance(options, Mapping):
        return any(map(_trains, value.values()))
    # a layer with a configuration inside has this change already: the inner layers change first
    return options.get("trainable") is True
