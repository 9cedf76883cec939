"""The rule for `trainable`: a weight is trained if and only if every layer around it is trainable.

Each layer has a flag, and one invariant holds: a frozen layer contains frozen layers only. The
constructor and `Layer.replace` keep the invariant, so the flag of the layer that owns a weight
decides alone. `fk.partition`, `Trainer`, regularization losses, constraints and layers that compute
differently when frozen, such as BatchNormalization, all read that flag.

| change | layers inside |
|---|---|
| `Wrapper(layer, trainable=False)`, `layer.replace(trainable=False)`, `fk.freeze(layer)` | become frozen |
| a frozen layer's `replace(trainable=True)` | become trainable, as with Keras's setter |
| `replace` of a layer inside a frozen layer by a trainable layer | the new layer becomes frozen |
| `fk.unfreeze(model, "block1")` | "block1" becomes trainable, and so do the layers around it |

Keras 3 keeps the rule for `layer.trainable = False`, but not for the constructor: a wrapper made with
`trainable=False` lists no trained weights, yet a model around the wrapper trains them. Here such
weights are frozen. Files of Keras 3 train as in Keras: the loader sets `trainable=True` in wrappers
around trained layers (`fkeras/saving/quirks/freezing.py`).
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from fkeras.engine.tree.sublayers import map_children
from fkeras.engine.tree.walk import layers_in, map_layers
from fkeras.engine.values.annotations import Layer


def pass_on_trainable(layer: Layer, explicit: Container[str] = ()) -> None:
    """Gives the layers inside a new layer its flag; called while the layer is under construction.

    Args:
        layer: the layer; its fields change in place.
    """
    flag, child_fields = layer.trainable, type(layer)._child_fields
    for name, value in list(layer.__dict__.items()):
        if name in explicit or (child_fields is not None and name not in child_fields):
            continue
        if any(child.trainable != flag for _, child in layers_in(value)):
            layer.__dict__[name] = map_layers(value, lambda _, child: child.replace(trainable=flag))


def set_trainable(layer: Layer, trainable: bool) -> Any:
    """The layer with this flag on the layer itself and on all layers inside.

    Example:
        >>> import fkeras as fk
        >>> layer = fk.layers.TimeDistributed(fk.layers.Dense(2, trainable=False))
        >>> layer.replace(trainable=True).layer.trainable, set_trainable(layer, True).layer.trainable
        (False, True)
    """
    children = map_children(layer, lambda _, child: set_trainable(child, trainable))
    return layer.replace(**children, trainable=trainable)
