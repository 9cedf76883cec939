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

from fkeras.saving.own_options import changed, is_merge

_MAKERS = ("Masking", "Lambda")


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
    if not _makes_masks(config, custom):
        return config
    found = re.match(r"3\.(\d{1,4})", version)
    merges = found is None or int(found[1]) >= 4
    rule = {"masks": "any"} if merges else {}
    # in our own files: null for a call without the masks of its inputs, true for one with them
    # all, in the place of what the reader of graphs takes a call of Keras's for
    given = True if merges else None

    def change(item: Mapping[str, Any]) -> Mapping[str, Any]:
        if not is_merge(item, custom):
            return item
        made = {**item, "config": {**rule, **item["config"]}}
        if isinstance(item.get("inbound_nodes"), list):
            made["inbound_nodes"] = [
                {**node, "mask": given} if isinstance(node, Mapping) else node
                for node in item["inbound_nodes"]
            ]
        return made

    return changed(config, change)


def _makes_masks(config: Any, custom: frozenset[str]) -> bool:
    """Whether something in a model may make masks: a layer that does, or a call that is given one."""
    waiting = [config]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            waiting.extend(item)
        elif isinstance(item, Mapping):
            kind, inner = item.get("class_name"), item.get("config")
            if isinstance(kind, str) and isinstance(inner, Mapping):
                if kind in _MAKERS or kind in custom or inner.get("mask_zero"):
                    return True
            options = item.get("kwargs")
            if isinstance(options, Mapping) and _is_given(options.get("mask")):
                return True
            waiting.extend(item.values())
    return False


def _is_given(mask: Any) -> bool:
    """Whether a mask, or one of several, is there; what stands in a file is None where none is."""
    return any(map(_is_given, mask)) if isinstance(mask, list) else mask is not None
