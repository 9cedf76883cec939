"""`Lambda` layers of old files: the user passes the function; bytecode in a file is never run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fkeras.engine import Layer
from fkeras.saving.legacy.files.graphs import safe_name
from fkeras.saving.quirks.origin import Origin


class _Given:
    """Stands for a layer that the user handed over."""

    def __init__(self, layer: Layer):
        self._layer = layer

    def from_config(self, config: Mapping[str, Any], custom_objects: Any = None) -> Layer:
        return self._layer.replace(name=config["name"])


def lambda_layer(
    config: Mapping[str, Any],
    name: str | None,
    origin: Origin,
    custom_objects: Mapping[str, Any],
    extra: dict[str, Any],
) -> dict[str, Any]:
    """The configuration of a `Lambda` with a function of the user's.

    `custom_objects` has the function under its own name, where the file knows it, or a function or
    layer under the name of the layer.

    Args:
        config: the layer's configuration.
        name: its name.
        origin: who wrote the file.
        custom_objects: the user's functions by name.
        extra: receives what the result refers to.

    Returns:
        The arguments of the `Lambda`, or a whole item where the user gave a layer.

    Raises:
        FileError: where the user gave none: what a file carries is bytecode, and is never run.
    """
    function = config.get("function")
    if isinstance(function, Mapping) and isinstance(function.get("config"), str):
        function = function["config"]
    word = function if isinstance(function, str) and len(function) < 200 else None
    given = custom_objects.get(name) if name else None
    given = custom_objects.get(word) if given is None and word else given
    if given is None:
        key = name or "lambda"
        known = f" It is called {word!r}." if word and word.isidentifier() else ""
        raise origin.error(
            "a Lambda layer; its function stands in the file as Python bytecode or not at all, and "
            f"is never run.{known} Pass the function, or a layer that computes the same: "
            f"custom_objects={{{key[:80]!r}: lambda x: ...}}.",
            name,
        )
    key = f"lambda of {name}"
    own = safe_name(name) if name else None
    if isinstance(given, Layer):
        extra[key] = _Given(given)
        return {"class_name": key, "config": {"name": own or given.name}}
    extra[key] = given
    made: dict[str, Any] = {"function": key, "trainable": config.get("trainable") is not False}
    if isinstance(config.get("arguments"), Mapping):
        made["arguments"] = dict(config["arguments"])
    return {**made, "name": own} if own else made
