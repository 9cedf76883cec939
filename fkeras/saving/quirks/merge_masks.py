"""Merge layers of Keras 3 as they compute masks there, by the version that wrote a file.

| Keras | the mask of a sum, product, maximum ... | where one input has no mask |
|---|---|---|
| 3.0 to 3.3 | none: it is lost | none |
| since 3.4 | valid where any input is | none; a concatenation's is True everywhere |

What a layer gets as its mask is recorded in a file and is used as recorded. This is for the masks
that nothing in the graph takes: those of the model's outputs, by which losses are weighed. Since 3.4
products, maxima and minima leave masked steps of an input out, which is in no record either.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from fkeras.engine.call.mask_rules import makes_masks
from fkeras.saving.quirks.extension_keys import changed, is_merge


def merged_as_in(version: str, config: Any, custom: Iterable[str] = ()) -> Any:
    """The configuration of a model of Keras 3 whose merge layers compute masks as they did there.

    A model without masks stays as it is.

    Args:
        version: the version of Keras, such as "3.15.1".
        config: the configuration.
        custom: names of classes of the user's own.

    Example:
        >>> add = {"module": "keras.layers", "class_name": "Add", "config": {}}
        >>> masking = {"module": "keras.layers", "class_name": "Masking", "config": {}}
        >>> merged_as_in("3.15.1", [masking, add])[1]["config"]
        {'masks': 'any'}
        >>> merged_as_in("3.3.3", [masking, {**add, "inbound_nodes": [{}]}])[1]["inbound_nodes"]
        [{'mask': None}]
    """
    custom = frozenset(custom)
    if not makes_masks(config, lambda item: item["class_name"] in custom):
        return config
    found = re.match(r"3\.(\d{1,4})", version)
    merges = found is None or int(found[1]) >= 4
    rule = {"masks": "any"} if merges else {}

    def change(item: Mapping[str, Any]) -> Mapping[str, Any]:
        if not is_merge(item, custom):
            return item
        made = {**item, "config": {**rule, **item["config"]}}
        if not merges and isinstance(item.get("inbound_nodes"), list):
            # null in our own files too: a call without the masks of its inputs
            made["inbound_nodes"] = [
                {**node, "mask": None} if isinstance(node, Mapping) else node
                for node in item["inbound_nodes"]
            ]
        return made

    return changed(config, change)
