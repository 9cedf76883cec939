"""Marks layers as frozen or trainable, by patterns of their paths.

A weight is trained if and only if every layer around it is trainable; `fkeras.engine.layer.trainable`
has the rule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from fkeras.engine.layer.layer import Layer
from fkeras.engine.layer.trainable import set_trainable
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.engine.migration_hints.dropped import returned
from fkeras.engine.models.partition import require_layer
from fkeras.engine.tree.sublayers import children, map_children
from fkeras.engine.tree.walk import layers_in
from fkeras.transforms.graph.selecting import Pattern, matcher, require_match

Model = TypeVar("Model", bound=Layer)


@hides_internal_frames
def freeze(model: Model, pattern: Pattern = "*") -> Model:
    """Returns a copy whose matching layers, and all layers inside them, are frozen.

    `fk.freeze(model)` equals `model.replace(trainable=False)`.

    Args:
        model: a layer or model.
        pattern: a pattern for layer paths such as "block1*" or "encoder/dense", a list of patterns,
            or a function of path and layer.

    Raises:
        ValueError: if no layer matches the pattern, or a pattern of a list.

    Example:
        >>> import fkeras as fk
        >>> x = fk.Input((4,))
        >>> model = fk.Model(x, fk.layers.Dense(2, name="head")(fk.layers.Dense(3, name="body")(x)))
        >>> fk.freeze(model, "bo*").layers["body"].trainable
        False
    """
    line = "model = fk.freeze(model, pattern)"
    return returned(_mark(model, pattern, False), "fk.freeze", line, depth=2)


@hides_internal_frames
def unfreeze(model: Model, pattern: Pattern = "*") -> Model:
    """Returns a copy whose matching layers, and all layers inside them, are trainable.

    The layers around a matching layer become trainable too, since a frozen layer freezes all layers
    inside; other layers stay frozen. In Keras, by contrast, a layer inside a frozen model stays
    frozen until `model.trainable = True`, which makes all layers trainable.

    Args:
        model: a layer or model.
        pattern: as for `freeze`.

    Raises:
        ValueError: if no layer matches the pattern, or a pattern of a list.

    Example:
        >>> import fkeras as fk
        >>> x = fk.Input((4,))
        >>> model = fk.Model(x, fk.layers.Dense(2, name="head")(fk.layers.Dense(3, name="body")(x)))
        >>> model = fk.unfreeze(fk.freeze(model), "head")
        >>> [(name, layer.trainable) for name, layer in model.layers.items()]
        [('input_layer', False), ('body', False), ('head', True)]
        >>> model.trainable
        True
    """
    line = "model = fk.unfreeze(model, pattern)"
    return returned(_mark(model, pattern, True), "fk.unfreeze", line, depth=2)


def _mark(model: Model, pattern: Pattern, trainable: bool) -> Model:
    require_layer(model, "freeze" if not trainable else "unfreeze")
    if pattern == "*":
        return set_trainable(model, trainable)
    require_match(model, pattern)
    return _mark_inside(model, "", matcher(pattern), trainable)


def _mark_inside(
    layer: Layer, path: str, matches: Callable[[str, Layer], bool], trainable: bool
) -> Any:
    if path and matches(path, layer):
        return set_trainable(layer, trainable)
    fields = map_children(
        layer, lambda child_path, child: _mark_inside(child, child_path, matches, trainable), path
    )
    new_children = [child for value in fields.values() for _, child in layers_in(value)]
    if all(old is new for (_, old), new in zip(children(layer), new_children, strict=True)):
        return layer
    # the fields are passed too, so a frozen layer around a match opens without its other layers
    return layer.replace(**fields, trainable=trainable or layer.trainable)
