"""Quirks: the meaning of a frozen layer, `trainable=False`, in versions of Keras.

In old files a frozen BatchNormalization may use batch statistics in training calls:

| written by | statistics of a frozen layer in a training call |
|---|---|
| Keras 1, and 2 until 2.1.2 | the batch; Keras updated the moving averages, fkeras does not |
| Keras 2.1.3 to 2.3.1 | the batch |
| TensorFlow 1, and 2 with TensorFlow 1's behaviour | the batch |
| TensorFlow 2 and Keras 3 | the moving averages |

In Keras 3, `trainable=False` in a constructor does not freeze the layers inside.
`TimeDistributed(layer, trainable=False)`, `RNN(cell, trainable=False)` and models train their inner
layers in Keras 3; only an assignment, `layer.trainable = False`, also freezes them. A file stores
the flag of each layer, and Keras passes these flags to constructors again, so the flags of the
innermost layers decide. Here, a frozen layer freezes the layers inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fkeras.engine.values.config_walk import PLAIN
from fkeras.host.containers.strict_json import ParsedJson
from fkeras.saving.quirks.layer_configs import change_layers
from fkeras.saving.quirks.origin import Origin

# class names of all versions: this quirk runs before the conversion to Keras 3's names
_CLASSES = (
    "BatchNormalization",
    "BatchNormalizationV1",
    "BatchNormalizationV2",
    "SyncBatchNormalization",
)
_INITIALIZERS = ("beta", "gamma", "moving_mean", "moving_variance")


def with_batch_statistics(
    config: ParsedJson, origin: Origin, custom: frozenset[str] = frozenset()
) -> Any:
    """Sets `frozen="batch"` in frozen BatchNormalization layers that used batch statistics.

    Layers that are trainable in the file keep the default: if the user freezes such a layer later,
    the layer behaves as in Keras 3.
    """
    return _change(config, origin, custom, frozen=False)


def _change(item: ParsedJson, origin: Origin, custom: frozenset[str], frozen: bool) -> Any:
    if isinstance(item, list):
        return [_change(part, origin, custom, frozen) for part in item]
    if not isinstance(item, Mapping):
        return item
    class_name, config = item.get("class_name"), item.get("config")
    if (
        isinstance(class_name, str) and class_name in custom
    ):  # the user's class defines its configuration
        return item
    if isinstance(class_name, str) and isinstance(config, Mapping):
        # a frozen model or wrapper freezes the layers inside
        frozen = frozen or config.get("trainable") is False
        if class_name in _CLASSES:
            uses_batch_statistics = frozen and uses_batch(class_name, config, origin)
            return (
                {**item, "config": {**config, "frozen": "batch"}} if uses_batch_statistics else item
            )
    return {key: _change(value, origin, custom, frozen) for key, value in item.items()}


def uses_batch(kind: str, config: Mapping[str, Any], origin: Origin) -> bool:
    """Returns whether a frozen BatchNormalization uses batch statistics in training calls.

    TensorFlow 1.13 to 2.1 wrote the same version and class name for both behaviours. The
    initializers distinguish them: the initializers of TensorFlow 1 have a dtype.
    """
    # these classes exist only with TensorFlow 2's behaviour
    if kind in ("BatchNormalizationV2", "SyncBatchNormalization"):
        return False
    if not origin.tensorflow or origin.version < (2, 2) or kind == "BatchNormalizationV1":
        return True
    initializers = [config.get(f"{name}_initializer") for name in _INITIALIZERS]
    configs = [entry.get("config") for entry in initializers if isinstance(entry, Mapping)]
    return any(isinstance(entry, Mapping) and "dtype" in entry for entry in configs)


def with_trained_children(
    config: ParsedJson, origin: Origin, custom: frozenset[str] = frozenset()
) -> Any:
    """Sets `trainable=True` in frozen layers and models that contain a trained layer.

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


def _trains(value: ParsedJson) -> bool:
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
