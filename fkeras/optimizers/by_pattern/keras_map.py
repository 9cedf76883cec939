"""Patterns of weight paths, and conversion to and from Keras's OptimizerMap.

In Keras the patterns are regular expressions that match whole paths. The patterns have no order:
two patterns must not match the same path, an exact path takes precedence, and a default optimizer
updates the remaining weights.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from typing import Any

_REGULAR = "re:"


def expression(pattern: str) -> str:
    """Converts a pattern to a regular expression."""
    if pattern.startswith(_REGULAR):
        return pattern.removeprefix(_REGULAR)
    return fnmatch.translate(pattern)


def fits(pattern: str, path: str) -> bool:
    """Returns whether a pattern matches a whole path."""
    return re.fullmatch(expression(pattern), path) is not None


def write(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Returns a Keras OptimizerMap configuration for ordered patterns, of which the first applies.

    The additional key "patterns", which Keras ignores, records the order and the original patterns.
    """
    expressions = []
    for index, (pattern, _) in enumerate(pairs):
        earlier = "|".join(f"(?:{expression(p)})" for p, _ in pairs[:index])
        # a lookahead excludes paths of earlier patterns: Keras rejects paths with two matches
        exclusion = f"(?!(?:{earlier})$)" if earlier else ""
        expressions.append(f"{exclusion}(?:{expression(pattern)})")
    configs = [config for _, config in pairs]
    return {
        "module": "keras.optimizers",
        "class_name": "OptimizerMap",
        "config": {
            "default_optimizer": configs[-1],
            "optimizer_map": dict(zip(expressions, configs, strict=True)),
            "patterns": [[p, e] for (p, _), e in zip(pairs, expressions, strict=True)],
        },
        "registered_name": None,
    }


def read(config: Any) -> list[tuple[str, Any]]:
    """Returns `(pattern, configuration)` pairs from an OptimizerMap of `write` or of Keras."""
    if not isinstance(config, Mapping) or config.get("class_name") != "OptimizerMap":
        raise ValueError(
            "MultiOptimizer.from_config: expected the configuration of an OptimizerMap as "
            f"'optimizer_map', received {config!r}. A function cannot be read: create a "
            "MultiOptimizer with patterns."
        )
    config = config["config"]
    optimizers = config["optimizer_map"]
    if "patterns" in config:
        return [(pattern, optimizers[key]) for pattern, key in config["patterns"]]
    return [*by_pattern(optimizers), ("*", config["default_optimizer"])]


def by_pattern(found: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Converts a Keras map to pairs with patterns that begin with "re:", exact paths first."""
    # a key without special characters is an exact path; re.escape also escapes "-", which has no
    # special meaning outside brackets; the sort is stable
    keys = sorted(found, key=lambda key: re.escape(key) != key.replace("-", r"\-"))
    return [(_REGULAR + key, found[key]) for key in keys]
