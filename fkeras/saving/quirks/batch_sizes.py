"""Batch sizes in Keras's files: the size of a batch that the model met first, no constraint.

Keras stores the batch size with which a `Sequential` without `Input` was first called, and the one
of `Input(batch_shape=...)`; the models take batches of any size nevertheless. Only models with
stateful layers need the stored size, since their state holds a row for each sample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from fkeras.engine.symbolic.input import needs_batch_size
from fkeras.saving.quirks.extension_keys import changed

Made = TypeVar("Made")


def with_any_batch(config: Any) -> Any:
    """The configuration of a model of Keras whose inputs take batches of any size.

    The same object for a model that needs the stored batch size, or stores none.

    Example:
        >>> item = {"class_name": "InputLayer", "config": {"batch_shape": [16, 5]}}
        >>> with_any_batch(item)["config"]
        {'batch_shape': [None, 5]}
    """
    if needs_batch_size(config):
        return config
    found = []

    def change(item: Mapping[str, Any]) -> Mapping[str, Any]:
        inner = dict(item["config"])
        for key in ("batch_shape", "batch_input_shape", "build_input_shape"):
            shape = inner.get(key)
            if isinstance(shape, list) and shape and type(shape[0]) is int:
                inner[key] = [None, *shape[1:]]
                found.append(key)
        return {**item, "config": inner}

    made = changed(config, change)
    return made if found else config


def made_for_any_batch(config: Any, make: Callable[[Any], Made]) -> Made:
    """Makes a model for batches of any size, or else for the stored batch size.

    Args:
        config: the configuration of a model of Keras.
        make: makes the model of a configuration.
    """
    relaxed = with_any_batch(config)
    if relaxed is not config:
        try:
            return make(relaxed)
        except Exception:
            pass  # a call of the graph depends on the size: the error, if any, comes from below
    return make(config)
