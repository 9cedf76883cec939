"""Keras's OptimizerMap: optimizers by regular expressions of weight paths, and a default."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Self

from fkeras.engine.config.configurable import Configurable, option, suggest
from fkeras.optimizers.by_pattern import keras_map
from fkeras.optimizers.naming import Identifier, get


def _default(value: Identifier) -> Any:
    optimizer = get(value)
    if optimizer is None:
        raise TypeError(
            "OptimizerMap: expected a default_optimizer, for weights that match no pattern, "
            "received None. For example 'adam'."
        )
    return optimizer


def _map(value: object) -> Any:
    value = {} if value is None else value
    if not isinstance(value, Mapping):
        raise TypeError(
            f"OptimizerMap: expected a dictionary of optimizers by regular expressions, received "
            f"{value!r}. For example {{'encoder/.*': 'sgd'}}."
        )
    for pattern in value:
        try:
            re.compile(pattern)
        except (re.error, TypeError) as error:
            raise ValueError(
                f"OptimizerMap: expected a regular expression, received {pattern!r}: {error}."
            ) from None
    return {pattern: get(optimizer) for pattern, optimizer in value.items()}


class OptimizerMap(Configurable):
    """Optimizers by regular expressions that match whole weight paths, in Keras's form.

    `MultiOptimizer` accepts an `OptimizerMap` instead of patterns. As in Keras, a key that equals
    the path takes precedence. If several expressions match, the first one applies; Keras raises an
    error.

    Args:
        default_optimizer: the optimizer, or its name, for weights without a matching expression.
        optimizer_map: optimizers, or their names, by regular expression.

    Example:
        >>> import fkeras as fk
        >>> chosen = OptimizerMap("adam", {"encoder/.*": fk.optimizers.SGD(0.1)})
        >>> chosen["encoder/dense/kernel"], chosen["head/kernel"]
        (SGD(0.1), Adam(0.001))
        >>> [pattern for pattern, _ in fk.optimizers.MultiOptimizer(chosen).optimizer_map]
        ['re:encoder/.*', '*']
    """

    default_optimizer: Any = option(convert=_default)
    optimizer_map: Any = option(default=None, convert=_map)

    def __getitem__(self, path: str) -> Any:
        for key, optimizer in self.optimizer_map.items():
            if key == path:
                return optimizer
        # fullmatch, as in Keras: "dense" does not match "dense/kernel"
        matches = (o for key, o in self.optimizer_map.items() if re.fullmatch(key, path))
        return next(matches, self.default_optimizer)

    def __iter__(self) -> Iterator[str]:
        return iter(self.optimizer_map)

    def __len__(self) -> int:
        return len(self.optimizer_map)

    def pairs(self) -> tuple[tuple[str, Any], ...]:
        """Returns patterns of `MultiOptimizer` with optimizers: exact paths first, "*" last."""
        pattern_pairs = keras_map.by_pattern(self.optimizer_map)
        return (*pattern_pairs, ("*", self.default_optimizer))

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        """Creates a map from the data of `get_config`, of this package or of Keras."""
        unknown = [key for key in config if key not in ("default_optimizer", "optimizer_map")]
        # MultiOptimizer writes the key "patterns" for its own reader
        if unknown and unknown != ["patterns"]:
            raise ValueError(
                f"OptimizerMap.from_config: unknown key {unknown[0]!r}."
                f"{suggest(unknown[0], ('default_optimizer', 'optimizer_map'))}"
            )
        optimizer_configs = config.get("optimizer_map") or {}
        return cls(
            get(config["default_optimizer"], custom_objects),
            {
                pattern: get(optimizer, custom_objects)
                for pattern, optimizer in optimizer_configs.items()
            },
        )
