"""`fk.Sequential`: a chain of layers, as an immutable list."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Never, Self, overload

from jax.typing import DTypeLike

from fkeras.engine.call.mask_rules import STRICT
from fkeras.engine.call.node import SymbolicTensor, is_symbolic, record
from fkeras.engine.config.config_checks import entry, expect, name_of, naming
from fkeras.engine.config.configurable import convert_fields
from fkeras.engine.config.policy import DTypePolicy
from fkeras.engine.config.policy_maps import policy_at
from fkeras.engine.config.serialization import deserialize, inner_config, serialize
from fkeras.engine.graph.close import close, layer_names, origins_of
from fkeras.engine.graph.layer_dict import LayerDict
from fkeras.engine.graph_json.rule_keys import read_rule, written_rule
from fkeras.engine.layer.layer import Layer
from fkeras.engine.layer.trainable import pass_on_trainable
from fkeras.engine.messages.key_paths import within
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.engine.migration_hints.dropped import returned
from fkeras.engine.migration_hints.keras_objects import check_not_keras
from fkeras.engine.models.model import refuse_policy, symbolic_inputs
from fkeras.engine.network.network import Network
from fkeras.engine.strings.network import StringNetwork
from fkeras.engine.symbolic.input import InputLayer, is_input, needs_batch_size, symbolic
from fkeras.engine.values.annotations import Tree
from fkeras.engine.values.spec import Spec, name_axis
from fkeras.engine.values.structure import Branch


class Sequential(StringNetwork):
    """Applies layers one after another.

    `add`, `pop` and slices return new values. If the first entry is `fk.Input(...)` or a model with
    an input, the shapes are known at once, otherwise when the network is built or called.

    Args:
        layers: the layers; the first entry may be a tensor from `fk.Input`.
        name: the network's name.
        trainable: False to freeze all layers of the network.

    Raises:
        TypeError: for an entry that is not a layer.
        ValueError: for a `dtype` other than float32, as for `fk.Model`.

    Example:
        >>> import jax, fkeras as fk
        >>> from fkeras import layers
        >>> model = fk.Sequential([fk.Input((4,)), layers.Dense(8), layers.Dense(2)])
        >>> len(model), model.pop()[-1].units
        (2, 8)
        >>> model.build(jax.random.key(0)).count_params()
        58
    """

    _keras_module: ClassVar[str] = "keras"

    #: names of the layers in the order of their calls; a shared layer occurs several times
    _order: tuple[str, ...] = dataclasses.field(init=False)
    #: how masks reach the layers, see `mask_rules`; depends on the file that the network came from
    _mask_rule: str = dataclasses.field(init=False)

    def __init__(
        self,
        layers: Sequence[Layer | SymbolicTensor] = (),
        *others: Never,
        name: str | None = None,
        trainable: bool = True,
        dtype: DTypeLike | DTypePolicy = "float32",
    ):
        set_field = object.__setattr__
        set_field(self, "name", name)
        set_field(self, "trainable", trainable)
        set_field(self, "dtype", dtype)
        convert_fields(self)
        refuse_policy(self)
        if others:
            raise TypeError(
                "Sequential: expected one list of layers, received several arguments. Write "
                "`fk.Sequential([first, second])`."
            )
        is_single = isinstance(layers, Layer | str | Mapping) or is_symbolic(layers)
        if is_single or not isinstance(layers, Iterable):
            raise TypeError(
                f"{self._where}: expected a list of layers, received {type(layers).__name__}. Write "
                "fk.Sequential([layer])."
            )
        self._compose(list(layers), STRICT)

    def _compose(self, listed: list[Any], rule: str) -> None:
        """Sets the layers and the graph of a network under construction."""
        set_field = object.__setattr__
        start, entries = _start(listed)
        for layer_entry in entries:
            _check_entry(layer_entry, self._where)
        names = layer_names(list({id(e): e for e in entries}.values()), self._where)
        set_field(self, "_order", tuple(names[id(e)] for e in entries))
        members = {
            name: e if e.name == name else e.replace(name=name)
            for e, name in ((e, names[id(e)]) for e in entries)
        }
        set_field(self, "layers", LayerDict(members, self._order))
        if not self.trainable:
            pass_on_trainable(self)
        set_field(self, "graph", None)
        set_field(self, "_mask_rule", rule)
        if start is not None:
            graph, closed_layers = self._close(start)
            self.__dict__["_origins"] = origins_of(graph, start)
            set_field(self, "graph", graph)
            set_field(self, "layers", LayerDict(closed_layers, self._order))

    @classmethod
    def _of(cls, entries: list[Any], rule: str, **options: Any) -> Self:
        """The network of a list of layers, which may begin with an input; its calls follow a mask rule."""
        network = cls(**options)
        network._compose(entries, rule)
        return network

    def _close(self, x: Tree) -> tuple:
        """The graph that starts from the symbolic input `x`, and its layers."""
        start = x
        for index, name in enumerate(self._order):
            x = record(self.layers[name], (x,), {}, None, self._mask_rule)
            if not is_symbolic(x):
                raise ValueError(
                    f"{self._where}: layer {index}, {self.layers[name]._where}, returns "
                    f"{type(x).__name__}, and a Sequential passes a single tensor. Compose this "
                    "network with fk.Model(inputs, outputs)."
                )
        return close(start, x, self._where)

    def _resolve(self, *specs: Tree) -> Self:
        if self.graph is not None:
            return self
        if not self._order:
            raise ValueError(
                f"{self._where}: has no layers. Pass layers: fk.Sequential([layers.Dense(2)])."
            )
        if not specs:
            self._require_graph("build")
        if len(specs) != 1:
            raise TypeError(
                f"{self._where}: expected one input, received {len(specs)}. A Sequential passes a "
                "single tensor; for several inputs use fk.Model(inputs, outputs)."
            )
        return self._start_from(symbolic_inputs([_named_axes(specs[0])])[0])

    def _start_from(self, x: Tree) -> Self:
        """The network with the graph that starts from the symbolic input `x`."""
        graph, layers = self._close(x)
        return self.replace(graph=graph, layers=LayerDict(layers, self._order))

    # -- an immutable list of layers ----------------------------------------------------------

    def _listed(self) -> tuple[str, ...]:
        return self._order

    @property
    def _members(self) -> tuple[Layer, ...]:
        """The layers in the order of their calls, without the input."""
        return tuple(self.layers[name] for name in self._order)

    def _from_members(self, members: Sequence[Layer], first: int | None = 0) -> Self:
        """The network of these members, the first of which takes the inputs of member `first`."""
        start = []
        if self.graph is not None and first == 0:
            start = [self._input_layer()]
        elif self.graph is not None and first is not None:
            spec = self.graph.calls[first].outputs[0]
            start = [InputLayer(batch_shape=spec.dims, dtype=spec.dtype)]
        # the layers keep their weights; only the graph around them is new
        options = {"name": self.name, "trainable": self.trainable}
        network = self._of([*start, *members], self._mask_rule, **options)
        return network.replace(dtype=self.dtype)

    def _input_layer(self) -> InputLayer:
        layer = self.layers[self.graph.input_names[0]]
        assert isinstance(layer, InputLayer)  # a Sequential closes its graph over one fk.Input
        return layer

    @hides_internal_frames
    def add(self, layer: Layer) -> Self:
        """A network with one more layer at the end: `model = model.add(layer)`."""
        _check_entry(layer, self._where)
        model = self._from_members([*self._members, layer])
        return returned(model, "Sequential.add", "model = model.add(layer)", depth=2)

    @hides_internal_frames
    def pop(self) -> Self:
        """A network without the last layer: `model = model.pop()`."""
        if not self._order:
            raise IndexError(f"{self._where}: has no layer to remove.")
        model = self._from_members(self._members[:-1])
        return returned(model, "Sequential.pop", "model = model.pop()", depth=2)

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[Layer]:
        return iter(self._members)

    @overload
    def __getitem__(self, index: int | str) -> Layer: ...

    @overload
    def __getitem__(self, index: slice) -> Self: ...

    def __getitem__(self, index: int | str | slice) -> Any:
        if isinstance(index, slice):
            positions = range(len(self))[index]
            return self._from_members(
                self._members[index], positions[0] if positions and positions.step == 1 else None
            )
        if isinstance(index, str):
            return super().__getitem__(index)
        return self._members[index]

    # -- configuration ------------------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        """The layers as JSON data, in Keras's form."""
        entries = [*([self._input_layer()] if self.graph is not None else []), *self._members]
        config = {
            "name": self.name,
            "trainable": self.trainable,
            "dtype": self.dtype.name,
            "layers": [serialize(entry) for entry in entries],
        }
        return {**config, **written_rule(config, self._mask_rule)}

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        """The network of a configuration from `get_config` or Keras, without weights."""
        config = inner_config(config, ("Sequential", cls.__name__), cls.__name__)
        rule, config = read_rule(config, custom_objects, cls.__name__)
        layers_by_name: dict[str, Layer] = {}
        entries = []
        items = entry(config, "layers", (list, tuple), config.get("name"))
        for position, item in enumerate(items):
            with within("layers"), within(position), naming(name_of(item)):
                layer = expect(deserialize(item, custom_objects), Layer, "an entry of 'layers'")
            entries.append(layers_by_name.setdefault(layer.name, layer) if layer.name else layer)
        shape = entry(config, "build_input_shape", (list, tuple, type(None)), default=None)
        if shape and entries and not isinstance(entries[0], InputLayer):
            batch = shape[0] if needs_batch_size(config) else None
            entries.insert(0, InputLayer(batch_shape=(batch, *shape[1:])))
        options = {"name": config.get("name"), "trainable": config.get("trainable", True)}
        with within("layers"):
            network = cls._of(_with_input_dtype(entries), rule, **options)
        return network.replace(dtype=policy_at(config.get("dtype", "float32"), config.get("name")))


def _with_input_dtype(entries: list[Any]) -> list[Any]:
    """The entries of a configuration, with an integer input before a nested network that takes ids.

    A Sequential that Keras built from its first batch has an input of floats, and Keras's nested
    network casts them. Floats cannot hold large ids, so the input gets the nested network's dtype.
    """
    first, second = (*entries, None, None)[:2]
    if not isinstance(first, InputLayer) or not isinstance(second, Network) or not second.graph:
        return entries
    dtypes = {second.graph.specs[slot].dtype for slot in second.graph.input_slots}
    if first.spec.dtype.startswith("float") and len(dtypes) == 1 and "int" in min(dtypes):
        first = InputLayer(batch_shape=first.batch_shape, dtype=min(dtypes), name=first.name)
    return [first, *entries[1:]]


def _named_axes(spec: Tree) -> Any:
    """Returns the input spec of a nested Sequential, with names instead of computed sizes."""
    if not isinstance(spec, Spec):
        return spec
    dims = list(spec.dims)
    for axis, size in enumerate(spec.dims):
        computed = isinstance(size, str) and (not size.isidentifier() or "__" in size)
        if computed and name_axis(axis) not in dims:
            # equal sizes keep equal names
            dims = [name_axis(axis) if dim == size else dim for dim in dims]
    return Spec(tuple(dims), spec.dtype)


def _start(entries: list[Any]) -> tuple[Any, list[Any]]:
    """`(input, rest)`: the input tensor at the start of a list of entries, or None, and the layers."""
    if not entries:
        return None, entries
    first = entries[0]
    if isinstance(first, InputLayer):
        return symbolic(first), entries[1:]
    if is_symbolic(first):
        if not is_input(first):
            raise TypeError(
                "Sequential: the first entry is the output of a layer. Start with fk.Input, or "
                "compose with fk.Model(inputs, outputs)."
            )
        return first, entries[1:]
    if isinstance(first, Network) and first.graph and not isinstance(first.graph.inputs, Branch):
        spec = first.graph.specs[first.graph.input_slots[0]]
        return symbolic(InputLayer(batch_shape=spec.dims, dtype=spec.dtype)), entries
    return None, entries


def _check_entry(entry: object, where: str) -> None:
    if not isinstance(entry, Layer):
        check_not_keras(entry, where)
        hint = ""
        if isinstance(entry, type) and issubclass(entry, Layer):
            hint = f" It is a class: write {entry.__name__}(...)."
        elif callable(entry):
            hint = " Wrap a function: layers.Lambda(function)."
        raise TypeError(
            f"{where}: expected layers, received {type(entry).__name__}.{hint or ' Pass a list of '}"
            f"{'' if hint else 'layer objects, such as layers.Dense(2).'}"
        )
    if isinstance(entry, InputLayer):
        raise TypeError(f"{where}: an input can only be the first entry. Move it to the front.")
