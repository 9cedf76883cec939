"""`Lambda` layers of legacy files: the user passes the function; stored bytecode never runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fkeras.authoring.saving import Origin
from fkeras.engine import Layer
from fkeras.saving.legacy.calls.graphs import safe_name


class _Replacement:
    """Replaces a `Lambda` by a layer from `custom_objects`."""

    def __init__(self, layer: Layer):
        self._layer = layer

    def from_config(
        self, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Layer:
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

    Returns:
        The arguments of the `Lambda`, or a whole layer item if the user passed a layer.
    """
    function = config.get("function")
    if isinstance(function, Mapping) and isinstance(function.get("config"), str):
        function = function["config"]
    # A string is a function's name in Keras 1 and 2; long strings can be encoded bytecode.
    function_name = function if isinstance(function, str) and len(function) < 200 else None
    replacement = custom_objects.get(name) if name else None
    replacement = (
        custom_objects.get(function_name) if replacement is None and function_name else replacement
    )
    if replacement is None:
        key = name or "lambda"
        is_name = function_name is not None and function_name.isidentifier()
        name_note = f" The function's name is {function_name!r}." if is_name else ""
        raise origin.error(
            "the file stores the function of this Lambda layer as Python bytecode or not at all, and "
            f"fkeras never runs bytecode.{name_note} Pass the function, or a layer that computes the "
            f"same result: custom_objects={{{key[:80]!r}: lambda x: ...}}.",
            name,
        )
    # A key with spaces cannot collide with the name of a class or function in the file.
    key = f"lambda of {name}"
    layer_name = safe_name(name) if name else None
    if isinstance(replacement, Layer):
        extra[key] = _Replacement(replacement)
        return {"class_name": key, "config": {"name": layer_name or replacement.name}}
    extra[key] = replacement
    lambda_config: dict[str, Any] = {
        "function": key,
        "trainable": config.get("trainable") is not False,
    }
    if isinstance(config.get("arguments"), Mapping):
        lambda_config["arguments"] = dict(config["arguments"])
    return {**lambda_config, "name": layer_name} if layer_name else lambda_config
