"""Quirk: the mask of a merging layer (`Add`, `Concatenate`, ...) depends on the version of Keras.

| Keras | output mask of `Add`, `Multiply`, `Maximum` ... | if one input has no mask |
|---|---|---|
| 3.0 to 3.3 | none: the mask is dropped | none |
| since 3.4 | valid where any input is valid | none; for `Concatenate` that input counts as valid |

A file records the mask that each call receives, and calls use the recorded mask. The quirk concerns
masks that no call receives: the masks of the model's outputs, which weight the losses. Since 3.4,
products, maxima and minima also ignore masked steps of an input, which no file records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fkeras.engine.graph_json.rule_keys import makes_masks
from fkeras.host.containers.strict_json import ParsedJson
from fkeras.saving.quirks.layer_configs import change_layers, is_merge
from fkeras.saving.quirks.origin import Origin


def with_lost_masks(
    config: ParsedJson, origin: Origin, custom: frozenset[str] = frozenset()
) -> Any:
    """Drops the masks in all calls of merging layers, as Keras 3.0 to 3.3 does.

    A model without masks is returned unchanged.
    """

    def change(item: Mapping[str, Any]) -> Mapping[str, Any]:
        nodes = item.get("inbound_nodes")
        if not is_merge(item, custom) or not isinstance(nodes, list):
            return item
        # null is the form of fkeras's own files for a call without the masks of its inputs
        unmasked = [{**node, "mask": None} if isinstance(node, Mapping) else node for node in nodes]
        return {**item, "inbound_nodes": unmasked}

    return change_layers(config, change) if _may_mask(config, custom) else config


def with_merged_masks(
    config: ParsedJson, origin: Origin, custom: frozenset[str] = frozenset()
) -> Any:
    """Sets `masks="any"` in all merging layers, the rule of Keras since 3.4.

    A model without masks is returned unchanged.
    """

    def change(item: Mapping[str, Any]) -> Mapping[str, Any]:
        if not is_merge(item, custom):
            return item
        # a rule that the file already states wins
        return {**item, "config": {"masks": "any", **item["config"]}}

    return change_layers(config, change) if _may_mask(config, custom) else config


def _may_mask(config: ParsedJson, custom: frozenset[str]) -> bool:
    # without masks the rules agree, and the model keeps the default of new models. The code of a
    # custom class is unknown: such a class may make masks
    return makes_masks(config, lambda item: item["class_name"] in custom)
