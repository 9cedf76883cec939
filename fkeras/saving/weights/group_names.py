"""Names of the groups of layers that stand in a list, as Keras counts them."""

from __future__ import annotations

import types
from collections.abc import Sequence

from fkeras.engine import Layer
from fkeras.engine.values.naming import snake_case

# Keras's own name of a class, where the public name differs
_INNER_NAMES = types.MappingProxyType({"GroupQueryAttention": "GroupedQueryAttention"})


def group_names(layers: Sequence[Layer]) -> list[str]:
    """The class of each layer in snake case, numbered from the second of a class on.

    Example:
        >>> import fkeras as fk
        >>> group_names([fk.layers.Dense(2), fk.layers.ReLU(), fk.layers.Dense(2)])
        ['dense', 're_lu', 'dense_1']
    """
    counts: dict[str, int] = {}
    groups = []
    for layer in layers:
        name = layer.keras_form.class_name or type(layer).__name__
        name = snake_case(_INNER_NAMES.get(name, name))
        number = counts[name] = counts.get(name, -1) + 1
        groups.append(f"{name}_{number}" if number else name)
    return groups
