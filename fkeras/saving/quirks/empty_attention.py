"""Attention in Keras's files: a query that may attend to no key gives what Keras computes there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fkeras.saving.quirks.extension_keys import changed, is_attention


def attention_as_in_keras(config: Any, custom: Iterable[str] = ()) -> Any:
    """The configuration of a model of Keras whose attention has `empty_rows="keras"`.

    Args:
        config: the configuration.
        custom: names of classes of the user's own.

    Example:
        >>> layer = {"module": "keras.layers", "class_name": "Attention", "config": {}}
        >>> attention_as_in_keras([layer])[0]["config"]
        {'empty_rows': 'keras'}
    """
    custom = frozenset(custom)

    def change(item: Mapping[str, Any]) -> Mapping[str, Any]:
        if not is_attention(item, custom):
            return item
        return {**item, "config": {**item["config"], "empty_rows": "keras"}}

    return changed(config, change)
