"""`Network`: a layer whose children are layers by name and whose call runs a graph."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, overload

import jax

from fkeras.engine.call.caches import KeepsTokens, state_with_cache
from fkeras.engine.call.calls import is_plain
from fkeras.engine.call.context import Context, Output
from fkeras.engine.call.inference import Inference
from fkeras.engine.call.network_inputs import check_ranges, match_inputs
from fkeras.engine.call.node import symbolic_arguments
from fkeras.engine.call.signature import RecordedCall
from fkeras.engine.config.keras_form import KerasForm
from fkeras.engine.graph.close import exchanged
from fkeras.engine.graph.graph import Graph
from fkeras.engine.graph.layer_dict import LayerDict
from fkeras.engine.graph.listing import lines_text
from fkeras.engine.graph.walk import open_graph
from fkeras.engine.layer.layer import Layer
from fkeras.engine.messages.errors import FKerasError, NoGraphError, suggest
from fkeras.engine.migration_hints.arguments import explains_arguments
from fkeras.engine.migration_hints.overrides import check_model_methods
from fkeras.engine.network.capacity import check_capacity
from fkeras.engine.network.execution import Execution
from fkeras.engine.network.html import network_html
from fkeras.engine.network.inference import infer_by_calls
from fkeras.engine.network.summary import summary
from fkeras.engine.network.text import network_lines
from fkeras.engine.symbolic.operators import KerasTensor
from fkeras.engine.tree.skeleton import leaves_of, skeleton_of
from fkeras.engine.tree.weights import subkey
from fkeras.engine.values import structure
from fkeras.engine.values.annotations import Field, Leaf, Option, Tree
from fkeras.engine.values.cache_size import CacheSize
from fkeras.engine.values.frozen import FrozenDict
from fkeras.engine.values.random import ShapeKey
from fkeras.engine.values.spec import Spec, as_probes, as_spec, evaluate

_ADDRESS = re.compile(r"0x[0-9a-f]+")
# for axes of unknown size, where a program is traced
_SIZE = 32


class Network(KeepsTokens, Layer):
    """Runs a graph: computes the outputs from the inputs, call by call.

    `fk.Model` closes a graph over symbolic tensors; `fk.Sequential` makes a graph from a list of layers.

    Attributes:
        graph: the graph; None in a Sequential without known input shapes, although the declared
            type says `Graph`: every other network, and a built Sequential, has a graph.
        name: the name; None in a network without a name, although the declared type says `str`: a
            network inside another network has a name.
        layers: the layers by name, deepest first; an integer or a slice selects by position, as in
            Keras, and iteration gives names.

    Example:
        >>> import fkeras as fk
        >>> x = fk.Input((3,))
        >>> isinstance(fk.Model(x, fk.layers.Dense(2)(x)), fk.Network)
        True
    """

    _keras_module: ClassVar[str] = "keras"
    _autocast: ClassVar[bool] = False
    supports_masking: ClassVar[bool] = True
    _keras_form: ClassVar[KerasForm] = KerasForm(
        option_names=("training", "mask"), training_default=None
    )
    _transparent_field: ClassVar[str | None] = "layers"
    _child_fields: ClassVar[tuple[str, ...] | None] = ("layers",)

    graph: Graph = dataclasses.field(init=False)
    layers: LayerDict = dataclasses.field(init=False)

    if TYPE_CHECKING:

        @property
        def name(self) -> str: ...  # type: ignore[override]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        check_model_methods(cls)
        super().__init_subclass__(**kwargs)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "graph", None)
        object.__setattr__(self, "layers", LayerDict())

    def replace(self, **fields: Field) -> Self:
        copy = super().replace(**fields)
        if "layers" in fields:
            layers, given = copy.__dict__["layers"], fields["layers"]
            if isinstance(given, LayerDict) and given.changed and self.graph is not None:
                layers = exchanged(self.graph, given, self._where)
            copy.__dict__["layers"] = LayerDict(layers, copy._listed())
        graph = copy.__dict__["graph"]
        if graph is not None and copy.__dict__["layers"] is not self.layers:
            copy.__dict__["graph"] = graph.bind(copy.__dict__["layers"])
        return copy

    def _listed(self) -> tuple[str, ...] | None:
        """The names that positions in `layers` count; None for all."""
        return None

    # -- building -----------------------------------------------------------------------------

    @property
    def _overrides_apply(self) -> bool:
        checks_ranges = self.graph is not None and self.graph.takes_integers
        return checks_ranges or type(self).apply is not Network.apply

    @property
    def built(self) -> bool:
        return self.graph is not None and all(layer.built for layer in self.layers.values())

    @property
    def stateful(self) -> bool:
        return self.graph is None or any(layer.stateful for layer in self.layers.values())

    def build(self, key: jax.Array, *specs: Tree) -> Self:
        """Returns a copy whose layers all hold weights; built layers keep their weights.

        The key of each layer derives from its name, so adding a layer changes no other weights.

        Args:
            key: a PRNG key.
            specs: a spec for each input; needed for a network without a graph.

        Raises:
            FKerasError: if a spec does not fit the input with which the graph was recorded.
        """
        network = self._resolve(*specs) if self.graph is None else self
        if network is self:
            self._bound_specs(specs)
        built = {
            name: layer if layer.built else build_layer(network, name, key)
            for name, layer in network.layers.items()
        }
        return network.replace(layers=FrozenDict(built))

    if TYPE_CHECKING:

        def init_state(self, *specs: Tree, **named: Tree) -> dict[str, Any]: ...

        def init_cache(
            self, batch: int, length: int, *specs: Tree, slack: int = 0, **named: Tree
        ) -> dict[str, Any]: ...

    else:

        def init_state(self, *specs: Tree) -> dict[str, Any]:
            """Returns the state of every layer with state, by the layer's name.

            `init_cache(batch, length)` also makes the caches of the attention layers.

            Args:
                specs: a spec for each input, to fix a batch size that the graph leaves open; defaults
                    to the specs with which the graph was recorded.
            """
            return self._states(specs, lambda layer, inputs: layer.init_state(*inputs))

    def _state_with_cache(self, size: CacheSize, *specs: Tree) -> dict[str, Any]:
        graph = self._require_graph("init_cache")
        if not specs:
            inputs = {slot: self._of_batch(slot, size.batch) for slot in graph.input_slots}
            specs = (structure.fill(graph.inputs, inputs),)

        def state_of(layer: Layer, inputs: tuple) -> dict[str, Any]:
            return state_with_cache(layer, size, *inputs)

        return self._states(specs, state_of, cached=True)

    def _of_batch(self, slot: int, batch: int) -> Spec:
        """Returns the spec of an input for a batch size."""
        spec = self.graph.specs[slot]
        if spec.ndim and isinstance(spec.dims[0], int) and spec.dims[0] != batch:
            raise FKerasError(
                f"{self._where}: init_cache: expected the batch size {spec.dims[0]} of the input "
                f"{self.graph.coords[slot].layer!r}, received {batch}. Make the input with an open "
                "batch axis: fk.Input((None,)).",
                layer=self._where,
            )
        return Spec((batch, *spec.dims[1:]), spec.dtype) if spec.ndim else spec

    def _check_capacity(self, state: Mapping[str, Any], inputs: tuple, mask: Tree) -> None:
        if self.graph is not None:
            check_capacity(self, state, inputs, mask)

    def _states(
        self, specs: tuple, state_of: Callable[[Layer, tuple], dict[str, Any]], cached: bool = False
    ) -> dict[str, Any]:
        """Returns `state_of(layer, specs of its first call)` of every layer that has a state."""
        graph = self._require_graph("init_state")
        slots = self._bound_specs(specs)
        state = {}
        for name, layer in self.layers.items():
            number = graph.call_number(name)
            if graph.calls[number].is_input or not (cached or layer.stateful):
                continue
            call_specs = graph.call_specs(number, slots)
            layer_state = state_of(layer, call_specs)
            if cached and len(graph.calls_of[name]) > 1:
                self._check_one_cache(name, layer_state, call_specs)
            if layer_state:
                state[name] = layer_state
        return state

    def _check_one_cache(self, name: str, state: Mapping[str, Any], specs: tuple) -> None:
        """Raises FKerasError for a layer with a cache that the graph calls several times."""
        layer = self.layers[name]
        plain = layer.init_state(*specs) if layer.stateful else {}
        if jax.tree.structure(dict(state)) != jax.tree.structure(plain):
            raise FKerasError(
                f"{self._where}: init_cache: {name!r} has a cache and is called "
                f"{len(self.graph.calls_of[name])} times; the calls would overwrite each other's tokens. "
                "Share the layers that have weights, and call another attention layer each time.",
                layer=self._where,
            )

    def _bound_specs(self, specs: tuple) -> tuple[Spec, ...]:
        """Returns the spec of each slot, with unknown sizes fixed by the specs of the inputs."""
        graph = self.graph
        if not specs:
            return graph.specs
        input_specs = match_inputs(self, specs, "specs")
        values: dict[str, int] = {}
        for slot, spec in zip(graph.input_slots, input_specs, strict=True):
            if spec is None:  # an optional input
                continue
            recorded, spec = graph.specs[slot], as_spec(spec)
            sizes = list(zip(recorded.dims, spec.dims, strict=False))
            known = [pair for pair in sizes if all(isinstance(d, int) for d in pair)]
            if recorded.ndim != spec.ndim or any(a != b for a, b in known):
                raise FKerasError(
                    f"{self._where}, input {graph.coords[slot].layer!r}: expected a spec of shape "
                    f"{recorded.shape}, received {spec.shape}. Make the model for this shape.",
                    layer=self._where,
                )
            values |= {d: n for d, n in sizes if isinstance(d, str) and isinstance(n, int)}
        return tuple(Spec(tuple(_bind(d, values) for d in s.dims), s.dtype) for s in graph.specs)

    def __getitem__(self, index: str) -> Layer:
        """Returns a layer by name, as `model.layers[name]`."""
        if isinstance(index, str):
            return self.layers[index]
        raise TypeError(f"{self._where}: has no layers by index. Write `model.layers[{index!r}]`.")

    def apply(
        self,
        *inputs: Tree,
        state: Mapping[str, Any] | None = None,
        training: bool = False,
        key: jax.Array | None = None,
        mask: Tree = None,
        **options: Option,
    ) -> Output:
        """Computes the `Output` of the network."""
        mode = {"state": state, "training": training, "key": key}
        plain = is_plain(self, inputs, state, key, mask, options)
        if not plain and symbolic_arguments(inputs, options, mask):
            return super().apply(*inputs, mask=mask, **mode, **options)  # raises
        return self._apply_to_arrays(inputs, mode, mask, options)

    def _apply_to_arrays(
        self, inputs: tuple, mode: dict[str, Any], mask: Tree, options: Mapping[str, Any]
    ) -> Output:
        """Computes a call on arrays."""
        if self.graph is not None and self.graph.takes_integers:
            # before the cast to the dtype of the input, which would wrap integers around
            check_ranges(self, inputs[0] if len(inputs) == 1 else inputs, self._where)
        return super().apply(*inputs, mask=mask, **mode, **options)

    def forward(self, context: Context, *inputs: Tree, **options: Option) -> Output:
        if options:
            names = ", ".join(options)
            raise TypeError(
                f"{self._where}: a model takes its inputs by position (or in one list or "
                f"dictionary); received {names} by name. Pass an option of a layer where the layer is "
                "called in the graph."
            )
        self._require_graph("A call")
        return Execution(self, context, inputs).output()

    def _infer_by_calls(self, call: RecordedCall, specs: tuple, masks: tuple) -> Inference:
        """Returns the inference of a call, composed of those of the calls in the graph."""
        return infer_by_calls(self, call, specs, masks)

    def _require_graph(self, operation: str) -> Graph:
        if self.graph is None:
            raise NoGraphError(
                f"{self._where}: {operation} needs input shapes; this network has not been built or called. "
                "Build it for a shape: `model = model.build(jax.random.key(0), (None, 8))`, or start the "
                "list of layers with fk.Input.",
                layer=self._where,
            )
        return self.graph

    # -- symbolic tensors of the graph --------------------------------------------------------

    def _open(self) -> tuple:
        """Returns a symbolic tensor for each slot, made once for each network object.

        Always the same objects: two calls of `tensor` must give tensors of one open graph.
        """
        tensors = self.__dict__.get("_opened")
        if tensors is None:
            graph = self._require_graph("The symbolic view")
            tensors = open_graph(graph, self.layers, self.__dict__.get("_origins", {}))
            self.__dict__["_opened"] = tensors
        return tensors

    def tensor(self, layer: str, node: int = 0, index: int = 0) -> KerasTensor:
        """Returns a symbolic tensor inside the network, for `fk.Model(model.inputs, tensor)`.

        Args:
            layer: the name of the layer.
            node: the index of the call among the calls of the layer.
            index: the index of the output of the call.
        """
        return self._open()[self._require_graph("tensor").slot(layer, node, index)]

    @property
    def inputs(self) -> Tree:
        """The symbolic inputs, in the structure that the network takes."""
        return structure.fill(self._require_graph("inputs").inputs, self._open())

    @property
    def outputs(self) -> Tree:
        """The symbolic outputs, in the structure that the network returns."""
        return structure.fill(self._require_graph("outputs").outputs, self._open())

    @property
    def input_names(self) -> tuple[str, ...]:
        """The name of each input."""
        return self._require_graph("input_names").input_names

    @property
    def output_names(self) -> tuple[str, ...]:
        """The name of the layer that computes each output."""
        return self._require_graph("output_names").output_names

    @property
    def uses_training(self) -> bool:
        """Whether a training call and an inference call compute different programs."""
        self._require_graph("uses_training")
        return uses_training(self)

    def get_layer(self, name: str | None = None, index: int | None = None) -> Layer:
        """Returns a layer by name or by its position in `layers`."""
        if (name is None) == (index is None):
            raise ValueError(
                f"{self._where}: get_layer expected a name or an index, received "
                f"{'neither' if name is None else 'both'}. Write model.layers['dense']."
            )
        names = list(self.layers)
        if index is not None:
            count = len(self.layers[:])
            if not -count <= index < count:
                raise ValueError(
                    f"{self._where}: asked for layer {index}, but the model has {count} "
                    f"layers. Existing layers are: {', '.join(names)}."
                )
            return self.layers[index]
        if name is None or name not in self.layers:
            raise ValueError(
                f"{self._where}: there is no layer {name!r}.{suggest(str(name), names)} Existing layers "
                f"are: {', '.join(names)}."
            )
        return self.layers[name]

    @overload
    def summary(self, *, nested: bool = True, show: Literal[True] = True) -> None: ...

    @overload
    def summary(self, *, nested: bool = True, show: Literal[False]) -> str: ...

    @explains_arguments
    def summary(self, *, nested: bool = True, show: bool = True) -> str | None:
        """Prints the layers as a table: outputs, parameters, state, FLOPs, bytes and connections.

        Args:
            nested: whether the table lists the layers of nested networks.
            show: False returns the table instead. A notebook would show a printed and returned
                table twice.
        """
        text = summary(self, nested=nested)
        if not show:
            return text
        print(text)
        return None

    def __repr__(self) -> str:
        return lines_text(network_lines(self))

    def _repr_html_(self) -> str:
        """Returns calls, summary and a drawing of the graph as HTML, which notebooks show."""
        return network_html(self)


def build_layer(network: Network, name: str, key: jax.Array) -> Layer:
    """Returns one layer with the weights that `Network.build` gives it for this key."""
    number, layer = network.graph.call_number(name), network.layers[name]
    specs = network.graph.call_specs(number)
    without_weights = all(leaf is None for leaf in leaves_of(layer))
    if not (isinstance(key, ShapeKey) and isinstance(layer, Network) and without_weights):
        return layer.build(subkey(key, name), *specs)
    # equal blocks have equal shapes, which are computed once
    call = network.graph.calls[number].signature, network.graph.input_specs(number)
    block = skeleton_of(layer.replace(name=None)), *call
    if block not in key.built:
        key.built[block] = layer.build(key, *specs)
    return key.built[block].replace(name=layer.name)


def _bind(dim: int | str, values: Mapping[str, int]) -> Any:
    if isinstance(dim, int):
        return dim
    try:
        return evaluate(dim, values)
    except KeyError:
        return dim


def uses_training(network: Network) -> bool:
    """Returns whether a training call and an inference call compute different programs."""
    graph = network.graph
    slots = graph.input_slots
    specs = dict(zip(slots, as_probes([graph.specs[s] for s in slots], _SIZE), strict=True))
    inputs = structure.fill(graph.inputs, specs)

    def program(training: bool) -> str:
        def compute(key: Leaf, x: Leaf) -> Tree:
            built = network.build(key)
            state = built.init_state(x)
            return built.apply(x, state=state, training=training, key=key)

        # a printed program contains the addresses of functions, which differ between two traces
        return _ADDRESS.sub("", str(jax.make_jaxpr(compute)(jax.random.key(0), inputs)))

    return program(True) != program(False)
