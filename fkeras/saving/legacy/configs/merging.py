"""Converts Keras 1's `Merge`, one class with seven modes, to layers of Keras 3."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

from fkeras.authoring.engine import custom_code
from fkeras.authoring.saving import Origin
from fkeras.host.containers.strict_json import field

_PLAIN = types.MappingProxyType(
    {"sum": "Add", "mul": "Multiply", "ave": "Average", "max": "Maximum"}
)


def merge(config: Mapping[str, Any], origin: Origin) -> tuple[str, dict[str, Any]]:
    """Returns `(class name, configuration)` of the Keras 3 layer that equals a `Merge`."""
    name = field(config, "name", str, **origin.place())
    where = origin.place(name)
    # "raw" means that the mode is a name; otherwise the mode is a function, stored as bytecode.
    if config.get("mode_type", "raw") != "raw":
        raise origin.error(
            "the file stores the function of this Merge layer as bytecode, which fkeras never runs. "
            f"Pass a layer that computes the same result: {custom_code(name, 'the_layer')}.",
            name,
        )
    mode = field(config, "mode", str, **where)
    options: dict[str, Any] = {"name": name}
    if mode in _PLAIN:
        return _PLAIN[mode], options
    if mode == "concat":
        return "Concatenate", {**options, "axis": field(config, "concat_axis", int, -1, **where)}
    if mode in ("dot", "cos"):
        axes = field(config, "dot_axes", (int, list), -1, **where)
        return "Dot", {**options, "axes": axes, "normalize": mode == "cos"}
    raise origin.error(
        f"expected a mode of Merge (sum, mul, ave, max, concat, dot or cos), received {mode!r:.80}. "
        "The file is damaged.",
        name,
    )
