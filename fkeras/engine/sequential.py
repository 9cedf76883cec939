"""`fk.Sequential`: layers in a row, as an immutable list."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

from fkeras.engine.checked import entry, expect, name_of, naming
from fkeras.engine.close import close, layer_names
from fkeras.engine.config import convert_fields
from fkeras.engine.frozen import FrozenDict
from fkeras.engine.input import InputLayer, is_input, symbolic
from fkeras.engine.layer import Layer
from fkeras.engine.lost_masks import keeps_masks, tolerated
from fkeras.engine.model import freeze_all, symbolic_inputs
from fkeras.engine.network import Network
from fkeras.engine.node import is_symbolic
from fkeras.engine.serialization import deserialize, serialize


class Sequential(Network):
    """Applies layers one after the other.

    `add`, `pop` and slices return new values. Where the first entry is `fk.Input(...)` the shapes
    are known at once, otherwise when the network is built or called.

    Args:
        layers: the layers; the first entry may be a tensor from `fk.Input`.
        name: the network's name.
        trainable: False to freeze every layer of it.

    Raises:
        TypeError: for an entry that is no layer.

    Example:
        >>> import jax, fkeras as fk
        >>> from fkeras import layers
        >>> model = fk.Sequential([fk.Input((4,)), layers.Dense(8), layers.Dense(2)])
        >>> len(model), model.pop()[-1].units
        (2, 8)
        >>> model.build(jax.random.key(0)).count_params()
        58
    """

    keras_module: ClassVar[str] = "keras"

    #: the names of the layers in the order of their calls
    order: tuple[str, ...] = dataclasses.field(init=False)
    #: whether a mask is lost at a layer that takes none, as in the file of Keras it comes from
    drops_masks: bool = dataclasses.field(init=False)

    def __init__(
        self,
        layers: Sequence[Any] = (),
        *,
        name: str | None = None,
        trainable: bool = True,
        dtype: Any = "float32",
    ):
        put = object.__setattr__
        put(self, "name", name)
        put(self, "trainable", trainable)
        put(self, "dtype", dtype)
        convert_fields(self)
        if isinstance(layers, Layer) or is_symbolic(layers):
            raise TypeError(
                f"{self.where}: expected a list of layers, received {type(layers).__name__}. Write "
                "fk.Sequential([layer])."
            )
        start, entries = _start(list(layers))
        for one in entries:
            _check_entry(one, self.where)
        names = layer_names(list({id(e): e for e in entries}.values()), self.where)
        put(self, "order", tuple(names[id(e)] for e in entries))
        members = {names[id(e)]: e.replace(name=names[id(e)]) for e in entries}
        members = FrozenDict(members)
        put(self, "layers", members if trainable else freeze_all(members))
        put(self, "graph", None)
        put(self, "drops_masks", False)
        if start is not None:
            graph, closed, _ = self._close(start)
            put(self, "graph", graph)
            put(self, "layers", closed)

    def _close(self, x: Any, keeps: Collection[str] | None = None) -> tuple:
        """The graph from `x` on, its layers, and whether a mask is lost on the way.

        Args:
            x: the symbolic input.
            keeps: None where masks are not lost but refused, as in what is written here; else the
                names of the networks that lose none.
        """
        start, dropped = x, False
        for index, name in enumerate(self.order):
            layer, options = self.layers[name], {}
            if keeps is not None and name not in keeps:
                layer, lost = tolerated(layer, [x])
                options = {"mask": None} if lost else {}
                dropped = dropped or lost
            x = layer(x, **options)
            if not is_symbolic(x):
                raise ValueError(
                    f"{self.where}: layer {index}, {self.layers[name].where}, returns "
                    f"{type(x).__name__}, and layers in a row hand on one tensor. Compose this "
                    "network with fk.Model(inputs, outputs)."
                )
        return (*close(start, x, self.where), dropped)

    def resolve(self, *specs: Any) -> Self:
        if self.graph is not None:
            return self
        if not self.order:
            raise ValueError(
                f"{self.where}: has no layers. Make it of some: fk.Sequential([layers.Dense(2)])."
            )
        if not specs:
            self._require_graph("build")
        if len(specs) != 1:
            raise TypeError(
                f"{self.where}: expected one input, received {len(specs)}. Layers in a row hand on "
                "one tensor; compose with fk.Model(inputs, outputs) for several."
            )
        graph, layers, _ = self._close(symbolic_inputs(specs)[0])
        return self.replace(graph=graph, layers=layers)

    def _begun(self, x: Any, keeps: Collection[str] = ()) -> Self:
        """The network from `x` on, in which masks are lost as in Keras."""
        graph, layers, lost = self._close(x, keeps)
        return self.replace(graph=graph, layers=layers, drops_masks=lost)

    # -- an immutable list of layers ----------------------------------------------------------

    @property
    def members(self) -> tuple[Layer, ...]:
        """The layers in a row, the input excepted."""
        return tuple(self.layers[name] for name in self.order)

    def _with(self, members: Sequence[Layer], first: int | None = 0) -> Self:
        """The network of these members, of which the first one takes what member `first` took."""
        start = []
        if self.graph is not None and first == 0:
            start = [self._input_layer()]
        elif self.graph is not None and first is not None:
            spec = self.graph.calls[first].outputs[0]
            start = [InputLayer(spec.dims, dtype=spec.dtype)]
        # weights stay with their layers; the network is closed again around them
        options = {"name": self.name, "trainable": self.trainable, "dtype": self.dtype}
        if start and self.drops_masks:
            return type(self)(members, **options)._begun(symbolic(start[0]))
        return type(self)([*start, *members], **options)

    def _input_layer(self) -> InputLayer:
        return self.layers[self.graph.input_names[0]]

    def add(self, layer: Layer) -> Self:
        """A network with one more layer at the end: `model = model.add(layer)`."""
        _check_entry(layer, self.where)
        return self._with([*self.members, layer])

    def pop(self) -> Self:
        """A network without the last layer: `model = model.pop()`."""
        if not self.order:
            raise IndexError(f"{self.where}: has no layers to take away.")
        return self._with(self.members[:-1])

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[Layer]:
        return iter(self.members)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            places = range(len(self))[index]
            return self._with(
                self.members[index], places[0] if places and places.step == 1 else None
            )
        return self.members[index]

    # -- configuration ------------------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        """The layers as JSON data, in Keras's form."""
        entries = [*([self._input_layer()] if self.graph is not None else []), *self.members]
        return {
            "name": self.name,
            "trainable": self.trainable,
            "dtype": self.dtype.name,
            "layers": [self._entry_config(entry) for entry in entries],
        }

    def _entry_config(self, layer: Layer) -> dict[str, Any]:
        item, graph = serialize(layer), self.graph
        if graph is not None and isinstance(layer, Network):
            calls = (graph.calls[n] for n in graph.calls_of[layer.name])
            if any(keeps_masks(graph, layer, call) for call in calls):
                item["mask"] = True  # which Keras's loses inside, and passes over here
        return item

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        """The network that `get_config` (or Keras) described, without weights."""
        known: dict[str, Layer] = {}
        entries, keeps = [], set()
        for item in entry(config, "layers", (list, tuple), config.get("name")):
            with naming(name_of(item)):
                layer = expect(deserialize(item, custom_objects), Layer, "an entry of 'layers'")
            entries.append(known.setdefault(layer.name, layer) if layer.name else layer)
            if item.get("mask") is True and layer.name:
                keeps.add(layer.name)
        shape = entry(config, "build_input_shape", (list, tuple, type(None)), default=None)
        if shape and entries and not isinstance(entries[0], InputLayer):
            entries.insert(0, InputLayer(shape))
        start, members = _start(entries)
        network = cls(
            members,
            name=config.get("name"),
            trainable=config.get("trainable", True),
            dtype=config.get("dtype", "float32"),
        )
        return network if start is None else network._begun(start, keeps)


def _start(entries: list[Any]) -> tuple[Any, list[Any]]:
    """The input tensor that a list of entries begins with, if it does, and the rest."""
    if not entries:
        return None, entries
    first = entries[0]
    if isinstance(first, InputLayer):
        return symbolic(first), entries[1:]
    if is_symbolic(first):
        if not is_input(first):
            raise TypeError(
                "Sequential: the first entry is a tensor that layers made. Start with fk.Input, or "
                "compose with fk.Model(inputs, outputs)."
            )
        return first, entries[1:]
    return None, entries


def _check_entry(entry: Any, where: str) -> None:
    if not isinstance(entry, Layer):
        hint = ""
        if isinstance(entry, type) and issubclass(entry, Layer):
            hint = f" It is a class: write {entry.__name__}(...)."
        elif callable(entry):
            hint = " For a function write layers.Lambda(function)."
        raise TypeError(
            f"{where}: expected layers, received {type(entry).__name__}.{hint or ' Pass a list of '}"
            f"{'' if hint else 'layer objects, such as layers.Dense(2).'}"
        )
    if isinstance(entry, InputLayer):
        raise TypeError(f"{where}: an input can only be the first entry. Move it to the front.")
