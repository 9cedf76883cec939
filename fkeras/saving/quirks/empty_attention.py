"""Quirk: a query whose keys are all masked yields the mean of the values in Keras, zeros here.

Keras adds one large negative number to all masked scores, so a softmax over only masked scores is
uniform, up to rounding. The output would depend on padding: new models return zeros, files keep
Keras's rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fkeras.host.containers.strict_json import ParsedJson
from fkeras.saving.quirks.layer_configs import change_layers, is_attention
from fkeras.saving.quirks.origin import Origin


def with_keras_rows(
    config: ParsedJson, origin: Origin, custom: frozenset[str] = frozenset()
) -> Any:
    """Sets `empty_rows="keras"` in all attention layers."""

    def change(item: Mapping[str, Any]) -> Mapping[str, Any]:
        if not is_attention(item, custom):
            return item
        return {**item, "config": {**item["config"], "empty_rows": "keras"}}

    return change_layers(config, change)
