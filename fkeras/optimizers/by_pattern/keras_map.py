"""Patterns of weight paths, and Keras's form of optimizers by pattern (its OptimizerMap).

There the patterns are regular expressions for whole paths without an order: no two may fit one
path, an exact path goes first, and a default takes the rest.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from typing import Any

_REGULAR = "re:"


def expression(pattern: str) -> str:
    """The regular expression of a pattern."""
    if pattern.startswith(_REGULAR):
        return pattern.removeprefix(_REGULAR)
    return fnmatch.translate(pattern)


def fits(pattern: str, path: str) -> bool:
    """Whether a pattern fits a whole path.

    Example:
        >>> fits("encoder/*", "encoder/dense/kernel"), fits("re:.*/(bias|beta)", "dense/bias")
        (True, True)
    """
    return re.fullmatch(expression(pattern), path) is not None


def write(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The configuration of Keras's OptimizerMap for optimizers by pattern, the first that fits.

    Keras does not read the key "patterns", which keeps the order and the patterns as they were.
    """
    expressions = []
    for index, (pattern, _) in enumerate(pairs):
        before = "|".join(f"(?:{expression(p)})" for p, _ in pairs[:index])
        # what an earlier pattern fits is no longer free: for Keras two would fit it
        free = f"(?!(?:{before})$)" if before else ""
        expressions.append(f"{free}(?:{expression(pattern)})")
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
    """The configurations of optimizers by pattern that `write`, or Keras, wrote.

    Raises:
        ValueError: where it is none.
    """
    if not isinstance(config, Mapping) or config.get("class_name") != "OptimizerMap":
        raise ValueError(
            "MultiOptimizer.from_config: expected the configuration of an OptimizerMap as "
            f"'optimizer_map', received {config!r}. A function in its place cannot be read: make "
            "a MultiOptimizer of patterns."
        )
    config = config["config"]
    found = config["optimizer_map"]
    if "patterns" in config:
        return [(pattern, found[key]) for pattern, key in config["patterns"]]
    return [*by_pattern(found), ("*", config["default_optimizer"])]


def by_pattern(found: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """What a map of Keras holds, by patterns that begin with "re:", exact paths first."""
    keys = sorted(found, key=lambda key: re.escape(key) != key.replace("-", r"\-"))
    return [(_REGULAR + key, found[key]) for key in keys]
