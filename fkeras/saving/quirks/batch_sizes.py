"""Quirk: Keras stores a batch size that does not restrict the model.

Keras stores the batch size of the first call of a `Sequential` without `Input`, and the batch size
of `Input(batch_shape=...)`, but the model still accepts batches of any size. Only models with
stateful layers need the stored size, since their state has one row per sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fkeras.engine.symbolic.input import needs_batch_size
from fkeras.host.containers.strict_json import ParsedJson
from fkeras.saving.quirks.layer_configs import change_layers
from fkeras.saving.quirks.origin import Origin


def with_any_batch(config: ParsedJson, origin: Origin, custom: frozenset[str] = frozenset()) -> Any:
    """Replaces stored batch sizes by None, unless a layer of the model is stateful."""
    if needs_batch_size(config):
        return config

    def change(item: Mapping[str, Any]) -> Mapping[str, Any]:
        layer_config = dict(item["config"])
        # the keys of Keras 3, of Keras 1 and 2, and of a Sequential without Input
        for key in ("batch_shape", "batch_input_shape", "build_input_shape"):
            shape = layer_config.get(key)
            # not isinstance: True would pass as an integer
            if isinstance(shape, list) and shape and type(shape[0]) is int:
                layer_config[key] = [None, *shape[1:]]
        return {**item, "config": layer_config}

    return change_layers(config, change)
