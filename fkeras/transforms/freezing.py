"""Marks layers as frozen or trainable, by patterns of their paths."""

from __future__ import annotations

from typing import Any

from fkeras.engine.layer.layer import Layer
from fkeras.engine.models.model import set_trainable
from fkeras.engine.models.partition import require_layer
from fkeras.transforms.replacing import Pattern, matcher, replace_layers, require_match


def freeze(model: Layer, pattern: Pattern = "*") -> Any:
    """A copy whose layers that match are not trainable, with all layers inside them.

    Args:
        model: a layer or model.
        pattern: a pattern for layer paths such as "block1*" or "encoder/dense", a list of them, or
            a function of path and layer.

    Raises:
        ValueError: where no layer matches.

    Example:
        >>> import fkeras as fk
        >>> x = fk.Input((4,))
        >>> model = fk.Model(x, fk.layers.Dense(2, name="head")(fk.layers.Dense(3, name="body")(x)))
        >>> fk.freeze(model, "bo*").layers["body"].trainable
        False
    """
    return _mark(model, pattern, False)


def unfreeze(model: Layer, pattern: Pattern = "*") -> Any:
    """A copy whose layers that match are trainable again; the inverse of `freeze`.

    Example:
        >>> import fkeras as fk
        >>> fk.unfreeze(fk.freeze(fk.layers.Dense(2))).trainable
        True
    """
    return _mark(model, pattern, True)


def _mark(model: Layer, pattern: Pattern, trainable: bool) -> Any:
    require_layer(model, "freeze" if not trainable else "unfreeze")
    matches = matcher(pattern)
    if pattern == "*":
        return set_trainable(model, trainable)
    require_match(model, pattern)

    def mark(path: str, layer: Layer) -> Layer | None:
        return set_trainable(layer, trainable) if path and matches(path, layer) else None

    return replace_layers(model, mark)
