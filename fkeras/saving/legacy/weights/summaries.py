"""Boundaries of `Discretization` in HDF5 files of tf.keras.

tf.keras stores a summary of the data from `adapt` as a weight, and computes the boundaries from the
summary when the file is opened. Here the boundaries are part of the configuration.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from fkeras.authoring.engine import describe_value, mappings
from fkeras.authoring.layers import find_boundaries
from fkeras.authoring.saving import Origin, change_layers, is_keras_layer
from fkeras.host.containers.hdf5 import Store
from fkeras.host.containers.strict_json import ParsedJson
from fkeras.saving.legacy.weights.weights import SUMMARY, base_name, file_layers


def with_boundaries(
    config: ParsedJson, store: Store, origin: Origin, custom: Collection[str] = ()
) -> Any:
    """Returns a model's configuration with the boundaries of its adapted layers.

    Args:
        custom: names of the user's classes, whose configurations stay unchanged.
    """

    def is_adapted(item: Any) -> bool:
        inner = item.get("config")
        return (
            item.get("class_name") == "Discretization"
            and is_keras_layer(item, custom)
            and isinstance(inner, Mapping)
            and inner.get("bin_boundaries") is None
            and type(inner.get("num_bins")) is int
            and inner["num_bins"] > 0
        )

    model: Any = config
    inner = model.get("config") if isinstance(model, Mapping) else None
    items = inner.get("layers") if isinstance(inner, Mapping) else inner
    if not isinstance(items, list) or not any(map(is_adapted, mappings(items))):
        return config
    stored = file_layers(store)

    def changed(item: Any) -> Any:
        name = item["config"].get("name") if isinstance(item.get("config"), Mapping) else None
        group, paths = stored.get(str(item.get("name") or name), ("", []))
        paths = [path for path in paths if base_name(path) == SUMMARY]
        # a layer that nothing adapted has an empty summary, and no boundaries
        if len(paths) != sum(map(is_adapted, mappings(item))):
            return item
        left = iter(paths)

        def change(item: Mapping[str, Any]) -> Mapping[str, Any]:
            if not is_adapted(item):
                return item
            boundaries = _boundaries(store.read(next(left)), item["config"], origin.at(f"/{group}"))
            return {**item, "config": {**item["config"], "bin_boundaries": boundaries}}

        return change_layers(item, change)

    layers = [changed(item) if isinstance(item, Mapping) else item for item in items]
    return {
        **model,
        "config": {**inner, "layers": layers} if isinstance(inner, Mapping) else layers,
    }


def _boundaries(summary: np.ndarray, config: Mapping[str, Any], origin: Origin) -> Any:
    is_table = summary.ndim == 2 and len(summary) == 2 and summary.dtype.kind == "f"
    if is_table and summary.size == 0:
        return None
    if not is_table or not np.isfinite(summary).all() or (summary[1] <= 0).any():
        name = config.get("name")
        raise origin.error(
            "expected a summary of two rows, finite values and their weights above 0, received "
            f"{describe_value(summary)}. The file is damaged.",
            name if isinstance(name, str) else None,
        )
    return list(find_boundaries(summary, config["num_bins"]))
