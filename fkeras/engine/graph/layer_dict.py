"""`LayerDict`: the layers of a network by name, position or slice.

Keras's `model.layers` is a list. Here it is a mapping, since states, files and patterns use names;
integers and slices select by Keras's order. Iteration yields names, as for every mapping, and a name
explains the difference to a program that treats the name as a layer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import TYPE_CHECKING, Any, overload

from fkeras.engine.graph.printers import layers_document, unfolding_layers
from fkeras.engine.layer.layer import Layer
from fkeras.engine.messages.errors import MissingNameError, describe_value, suggest
from fkeras.engine.migration_hints.hints import hints
from fkeras.engine.values.annotations import Option, Tree
from fkeras.engine.values.frozen import FrozenDict


def _loop() -> str:
    return hints("model.layers")["for layer in model.layers"]


class LayerName(str):
    """A layer's name from an iteration over `model.layers`; its missing attributes name the remedy.

    Example:
        >>> LayerName("dense") == "dense"
        True
        >>> LayerName("dense").units
        Traceback (most recent call last):
        ...
        AttributeError: 'dense' has no attribute 'units': a loop over model.layers gives names. ...
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"{str(self)!r} has no attribute {name!r}: a loop over model.layers gives names. Write "
            f"{_loop()}."
        )

    def __setattr__(self, name: str, value: object) -> None:
        remedy = _loop()
        if name == "trainable":
            remedy = f"`model = fk.freeze(model, {str(self)!r})`, or fk.unfreeze"
        raise dataclasses.FrozenInstanceError(
            f"{str(self)!r}: cannot set {name!r}: a loop over model.layers gives names, and layers "
            f"are values. Write {remedy}."
        )

    def __call__(self, *inputs: Tree, **options: Option) -> Any:
        raise TypeError(
            f"{str(self)!r} cannot be called: a loop over model.layers gives names. Write {_loop()}."
        )

    def __reduce__(self):
        # copies and pickles are plain strings: the errors serve loops over model.layers only
        return (str, (str(self),))


class LayerDict(FrozenDict[Layer]):
    """Layers by name; an integer selects by position, a slice returns a list.

    Args:
        items: the layers by name, in Keras's order.
        listed: names of the layers that positions count; None for all. Positions in a Sequential skip
            the input layer.

    Example:
        >>> import fkeras as fk
        >>> x = fk.Input((3,))
        >>> model = fk.Model(x, fk.layers.Dense(2, name="head")(fk.layers.Dense(4)(x)))
        >>> model.layers["head"].units, model.layers[-1].units, len(model.layers[1:])
        (2, 2, 2)
        >>> list(model.layers)
        ['input_layer', 'dense', 'head']
        >>> model.replace(layers=model.layers | {"dense": fk.layers.Dense(4, "relu")})["dense"]
        Dense(4, relu, name='dense')
    """

    __slots__ = ("_listed", "changed")

    #: the names whose layers `model.layers | {...}` has exchanged
    changed: tuple[str, ...]

    def __init__(self, items: Mapping[str, Layer] = FrozenDict(), listed: tuple | None = None):
        super().__init__(items)
        object.__setattr__(self, "_listed", listed)
        object.__setattr__(self, "changed", ())

    def like(self, items: Mapping[str, Any]) -> LayerDict:
        return LayerDict(items, self._listed)

    def __or__(self, other: Mapping[str, Any]) -> LayerDict:  # type: ignore[override]
        """Returns the layers with others under some names: `model.replace(layers=model.layers | {...})`."""
        if not isinstance(other, Mapping):
            return NotImplemented
        for name, layer in other.items():
            if not isinstance(layer, Layer):
                raise TypeError(
                    f"model.layers: expected a layer for {name!r}, received {describe_value(layer)}. A function "
                    f"takes the place of a layer in fk.transforms.replace(model, {{{name!r}: function}})."
                )
        named = {
            n: x.replace(name=n) if n in self._items and x.name != n else x
            for n, x in other.items()
        }
        layers = LayerDict({**self._items, **named}, self._listed)
        object.__setattr__(layers, "changed", (*self.changed, *named))
        return layers

    def in_order(self) -> list[Layer]:
        """Returns the layers in the order of positions."""
        names = self._items if self._listed is None else self._listed
        return [self._items[name] for name in names]

    @overload
    def __getitem__(self, key: str | int) -> Layer: ...

    @overload
    def __getitem__(self, key: slice) -> list[Layer]: ...

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            try:
                return self._items[key]
            except KeyError:
                raise MissingNameError(
                    f"model.layers: there is no layer {key!r}.{suggest(key, self._items)} Existing "
                    f"layers are: {_list_names(self._items)}."
                ) from None
        layers = self.in_order()
        if isinstance(key, slice):
            return layers[key]
        if not hasattr(key, "__index__"):
            raise TypeError(
                f"model.layers: expected a name, an integer or a slice, received {key!r}. Write "
                '`model.layers["dense"]` or `model.layers[-1]`.'
            )
        try:
            return layers[key]
        except IndexError:
            raise IndexError(
                f"model.layers: expected an integer from {-len(layers)} to {len(layers) - 1}, "
                f"received {key}. Existing layers are: {_list_names(self._items)}."
            ) from None

    def __contains__(self, key: object) -> bool:
        return key in self._items

    def get(self, key: object, default: Any = None) -> Any:
        return self._items.get(key, default)

    def __iter__(self) -> Iterator[str]:
        return map(LayerName, self._items)

    def __reversed__(self) -> Iterator[str]:
        return map(LayerName, reversed(self._items))

    def keys(self) -> KeysView[str]:
        return self._items.keys()

    def values(self) -> ValuesView[Layer]:
        return self._items.values()

    def items(self) -> ItemsView[str, Layer]:
        return self._items.items()

    if not TYPE_CHECKING:  # a type checker reports both without these explanations

        def __setitem__(self, key: object, value: object) -> None:
            raise TypeError(
                "model.layers cannot change: a model is a value. Make a copy with another layer: "
                f"{hints('model.layers')['model.layers[0] = other'].replace('{name}', repr(key))}."
            )

        def __getattr__(self, name: str) -> Any:
            remedy = hints("model.layers").get(f"model.layers.{name}")
            if remedy is not None:
                raise AttributeError(
                    f"model.layers: has no attribute {name!r}, since it is a mapping by name that "
                    f"cannot change. Instead: {remedy}."
                )
            if not name.startswith("_") and name in self._items:
                raise AttributeError(
                    f"model.layers: has no attribute {name!r}. Write `model.layers[{name!r}]`."
                )
            raise AttributeError(f"model.layers: has no attribute {name!r}.")

    def __treescope_repr__(self, path: str | None, subtree_renderer: Any) -> Any:
        """Returns the layers for treescope; each layer unfolds."""
        return unfolding_layers(self, path, subtree_renderer)

    def __pdoc__(self, **options: Any) -> Any:
        """Returns the layers for the printers of equinox."""
        return layers_document(self, options)

    def __reduce__(self):
        return (LayerDict, (self._items, self._listed))


def _list_names(names: Mapping[str, Any]) -> str:
    text = ", ".join(list(names)[:20])
    return f"{text}, ..." if len(names) > 20 else text or "none"
