"""By what a frozen BatchNormalization of an old file normalizes in training.

| written by | a training call of a frozen layer normalizes by |
|---|---|
| Keras 1, and 2 until 2.1.2 | the batch; there its averages moved on, here they rest |
| Keras 2.1.3 to 2.3.1 | the batch |
| TensorFlow 1, and 2 where it behaves as 1 | the batch |
| TensorFlow 2 and Keras 3 | its averages |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fkeras.saving.legacy.files.origin import Origin

_INITIALIZERS = ("beta", "gamma", "moving_mean", "moving_variance")


def by_batch(kind: str, config: Mapping[str, Any], origin: Origin) -> bool:
    """Whether a BatchNormalization of a file, once frozen, trains on statistics of the batch.

    TensorFlow calls both kinds by one name, and 1.13 to 2.1 wrote one version. But initializers of
    TensorFlow 1 note their dtype, which those of TensorFlow 2 do not have.

    Args:
        kind: the layer's class by the file's name.
        config: its configuration as the file has it.
        origin: who wrote the file.

    Example:
        >>> by_batch("BatchNormalization", {}, Origin((2, 3, 1)))
        True
        >>> by_batch("BatchNormalization", {}, Origin((2, 11, 0), tensorflow=True))
        False
    """
    if origin.major == 3 or kind in ("BatchNormalizationV2", "SyncBatchNormalization"):
        return False
    if not origin.tensorflow or origin.version < (2, 2) or kind == "BatchNormalizationV1":
        return True
    found = [config.get(f"{name}_initializer") for name in _INITIALIZERS]
    settings = [one.get("config") for one in found if isinstance(one, Mapping)]
    return any(isinstance(one, Mapping) and "dtype" in one for one in settings)


def only_frozen(item: Any, frozen: bool = False) -> Any:
    """A converted configuration in which nothing but frozen layers has the argument `frozen`.

    What the file trains is of today's kind where it is frozen later.

    Args:
        item: the configuration of a layer or network, or a part of one.
        frozen: whether what stands around it is frozen.

    Example:
        >>> config = {"trainable": True, "frozen": "batch"}
        >>> only_frozen({"class_name": "BatchNormalization", "config": config})["config"]
        {'trainable': True}
    """
    if isinstance(item, list):
        return [only_frozen(part, frozen) for part in item]
    if not isinstance(item, Mapping):
        return item
    config = item.get("config")
    if "class_name" in item and isinstance(config, Mapping):
        frozen = frozen or config.get("trainable") is False
        if item["class_name"] == "BatchNormalization" and not frozen:
            return {**item, "config": {k: v for k, v in config.items() if k != "frozen"}}
    return {key: only_frozen(value, frozen) for key, value in item.items()}
