"""`Lambda` layers of legacy files: the user passes the function; stored bytecode never runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fkeras.engine import Layer
from fkeras.saving.legacy.files.graphs import safe_name
from fkeras.saving.quirks.origin import Origin


class _Given:
    """Replaces a `Lambda` by a layer from `custom_objects`."""

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
    """Returns the configuration of a `Lambda` with the user's function.

    `custom_objects` holds the function under the function's name, if the file has this name, or a
    function or layer under the name of the `Lambda` layer.

    Args:
        config: configuration of the layer.
        name: name of the layer.
        origin: the program that wrote the file.
        custom_objects: the user's functions and layers by name.
        extra: receives the objects that the result refers to.

    Returns:
        The arguments of the `Lambda`, or a whole layer item if the user passed a layer.

    Raises:
        FileError: without a function from the user, because stored bytecode never runs.
    """
    function = config.get("function")
    if isinstance(function, Mapping) and isinstance(function.get("config"), str):
        function = function["config"]
    # A string is a function's name in Keras 1 and 2; long strings can be encoded bytecode.
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
    # A key with spaces cannot collide with the name of a class or function in the file.
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
