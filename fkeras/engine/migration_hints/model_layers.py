"""Migration hints for `model.layers`, a list in Keras and a mapping by name here."""

from __future__ import annotations

from types import MappingProxyType

VALUES = "`for layer in model.layers.values(): ...`, or `model.layers[:]` for a list"
REPLACED = "`model = fk.engine.replace_layers(model, lambda path, layer: other if path == {name} else None)`"
_CHANGED = "build another model from `model.layers[:]`, or `fk.Model(model.inputs, outputs)`"
# hints by the list's method; {name} is replaced by the name of the method
METHODS = MappingProxyType(
    {
        **{
            name: _CHANGED
            for name in ("append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse")
        },
        **{
            name: f"`model.layers[:].{name}`, of the list of layers"
            for name in ("index", "count", "copy")
        },
    }
)
