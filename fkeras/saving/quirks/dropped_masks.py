"""Quirk: Keras 1, Keras 2 and tf.keras drop a mask that reaches a layer without mask support.

A new model with such a layer is an error in user code, so the rule applies only to files.
"""

from __future__ import annotations

from typing import Any

from fkeras.engine.call.mask_rules import DROP
from fkeras.engine.graph_json.rule_keys import with_rule
from fkeras.host.containers.strict_json import ParsedJson
from fkeras.saving.quirks.origin import Origin


def with_dropped_masks(
    config: ParsedJson, origin: Origin, custom: frozenset[str] = frozenset()
) -> Any:
    """Sets the mask rule "drop" in all networks without a rule."""
    return with_rule(config, DROP)
