"""Records the calls of a model again, with an operation at selected calls.

All transforms of graphs are operations here: an operation receives a `Site`, a call that is about to
be recorded, and returns the symbolic outputs. Layers keep their weights and names, nested networks
are rebuilt first, and a network that no operation reaches stays the same object.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, MutableMapping
from types import MappingProxyType
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp

from fkeras.engine.call.network_inputs import match_inputs
from fkeras.engine.call.node import is_symbolic, record
from fkeras.engine.graph.call_table import Call
from fkeras.engine.graph.graph import Graph
from fkeras.engine.graph.walk import new_slots, run_calls
from fkeras.engine.layer.layer import Layer
from fkeras.engine.messages.errors import FKerasError, add_note
from fkeras.engine.models.model import Model
from fkeras.engine.models.sequential import Sequential
from fkeras.engine.network.network import Network
from fkeras.engine.symbolic.input import InputLayer, symbolic
from fkeras.engine.symbolic.operators import KerasTensor
from fkeras.engine.tree.sublayers import children, replace_children
from fkeras.engine.tree.walk import join_path
from fkeras.engine.values import structure
from fkeras.engine.values.annotations import Tree
from fkeras.engine.values.spec import Spec
from fkeras.engine.values.structure import fill_tensors

SomeLayer = TypeVar("SomeLayer", bound=Layer)
SomeNetwork = TypeVar("SomeNetwork", bound=Network)
#: records a call in another way and returns its symbolic outputs
Operation = Callable[["Site"], Tree]


@dataclasses.dataclass(frozen=True)
class Site:
    """A call of a network that is about to be recorded again.

    Attributes:
        where: the transform, for messages.
        path: the path of the layer in the whole model.
        node: the index of the call among the calls of its layer.
        call: the call in the graph before.
        layers: the layers of the new network by name, with all changes inside.
        tensors: the new input tensors of the call, in the numbering of its signature, with None for
            an optional input that is left out; for an input of the network, the input.
        specs: the specs of these tensors in the graph before.
        training: the mode that the call pins, or that a call of an opened network pins.
        names: the names of the new network that are taken.
    """

    where: str
    path: str
    node: int
    call: Call
    layers: MutableMapping[str, Layer]
    tensors: tuple[KerasTensor, ...]
    specs: tuple[Spec, ...]
    training: bool | None
    names: set[str]

    @property
    def layer(self) -> Layer:
        return self.layers[self.call.layer]

    @property
    def args(self) -> tuple:
        """The positional arguments of the call on the new tensors."""
        return fill_tensors(self.call.signature.args, self.tensors)

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of the call by name."""
        return fill_tensors(self.call.signature.options, self.tensors)

    def keep(self) -> Tree:
        """Records the call with its layer.

        A network that was recorded for other shapes is rebuilt for the new ones.
        """
        if self.call.is_input:
            return self.tensors[0]
        layer = self.layer
        if isinstance(layer, Network) and layer.graph is not None:
            specs = match_inputs(layer, self._spec_args())
            if not _fit(layer.graph, specs):
                layer = self.layers[self.call.layer] = _resized(layer, specs, self.where, self.path)
        try:
            return self._record(layer)
        except Exception as error:
            if self._same_shapes() or not isinstance(error, FKerasError | ValueError | TypeError):
                raise
            raise FKerasError(
                f"{self.where}: {self.path!r}, call {self.node}, no longer fits. It receives "
                f"{_texts(self._new_specs())} and was recorded for {_texts(self.specs)}: "
                f"{error} Replace this layer too; `fk.engine.unbuilt(layer)` is the layer without "
                "weights, which takes other sizes.",
                layer=self.path,
                node=self.node,
            ) from None

    def on(self, tensors: tuple[KerasTensor, ...]) -> Site:
        """Returns the site with other input tensors."""
        return dataclasses.replace(self, tensors=tensors)

    def put(self, new: Layer | Callable[..., Any]) -> Tree:
        """Records the call with another layer, or calls a function on the symbolic arguments."""
        if not isinstance(new, Layer):
            return new(*self.args, **self.options)
        try:
            return self._record(new)
        except Exception as error:
            add_note(
                error,
                f"{self.where}: {new._where} takes the place of {self.path!r}, call {self.node}, which "
                f"receives {_texts(self._new_specs())}.",
            )
            raise

    def pass_on(self, new: Layer | Callable[..., Any], tensor: KerasTensor) -> KerasTensor:
        """Returns the single output of a layer or function on a tensor of the network."""
        # the rule of the graph, since files of Keras let layers without masks drop them
        rule = self.call.mask_rule
        is_layer = isinstance(new, Layer)
        value = record(new, (tensor,), {}, None, rule) if is_layer else new(tensor)
        if not is_symbolic(value):
            what = new._where if isinstance(new, Layer) else "the function"
            raise TypeError(
                f"{self.where}: expected one symbolic tensor from {what} at {self.path!r}, received "
                f"{type(value).__name__}. Return one tensor."
            )
        return value

    def unique(self, layer: SomeLayer) -> SomeLayer:
        """Returns the layer as a new object; a name that is taken gets a number."""
        if layer.name is None:
            # the graph tells layers apart by identity
            return copy.copy(layer)
        name, number = layer.name, 1
        while name in self.names:
            name, number = f"{layer.name}_{number}", number + 1
        self.names.add(name)
        return copy.copy(layer) if name == layer.name else layer.replace(name=name)

    def _record(self, layer: Layer) -> Tree:
        rule = self.call.mask_rule
        # a call on constants has no tensor that tells the class of the outputs
        return record(layer, self.args, self.options, self.training, rule, KerasTensor)

    def _spec_args(self) -> tuple:
        return structure.fill(self.call.signature.args, self._new_specs())

    def _same_shapes(self) -> bool:
        return self._new_specs() == self.specs

    def _new_specs(self) -> tuple[Spec | None, ...]:
        return tuple(None if tensor is None else tensor.spec for tensor in self.tensors)


def rebuild(
    model: SomeLayer,
    operations: Mapping[str, Operation],
    where: str,
    *,
    replace_child: Callable[[str, Layer], Layer] | None = None,
    inputs: Mapping[str, InputLayer] | None = None,
) -> SomeLayer:
    """Returns the model with the calls of selected layers recorded by operations.

    Args:
        model: a network, or a layer with networks inside.
        operations: by path of a layer, the operation for its calls. Operations inside of a layer come
            before the operation for its calls.
        where: the transform, for messages.
        replace_child: `(path, layer) -> layer` for layers that no graph calls, such as the layer in
            a `TimeDistributed`; None if the operation needs a call in a graph.
        inputs: other inputs by path.

    Raises:
        FKerasError: for a network without a graph, for a call that no longer fits, and for a layer
            that no graph calls.
    """
    rebuilder = _Rebuilder(operations, where, replace_child, inputs or {})
    return cast(SomeLayer, rebuilder.layer(model, ""))


@dataclasses.dataclass(frozen=True)
class _Rebuilder:
    operations: Mapping[str, Operation]
    where: str
    replace_child: Callable[[str, Layer], Layer] | None
    inputs: Mapping[str, InputLayer]

    def layer(self, layer: Layer, path: str) -> Layer:
        """Returns a layer with the operations inside; the layer itself where nothing is selected."""
        inside = f"{path}/" if path else ""
        if not any(at.startswith(inside) for at in (*self.operations, *self.inputs)):
            return layer
        if not isinstance(layer, Network):
            return replace_children(layer, lambda at, child: self._child(child, at), path)
        require_graph(layer)
        _check_plain(layer, self.where)
        return self._network(layer, path)

    def _child(self, layer: Layer, path: str) -> Layer:
        if path not in self.operations:
            return self.layer(layer, path)
        if self.replace_child is None:
            raise FKerasError(
                f"{self.where}: expected a layer that a graph calls, received {path!r}, which the layer "
                f"around it calls. Pass {path.rpartition('/')[0] or 'the layer around it'!r}, or use "
                "transforms.replace.",
                layer=path,
            )
        return self.replace_child(path, layer)

    def _network(self, network: Network, path: str) -> Network:
        graph = network.graph
        layers: dict[str, Layer] = {}
        for name, layer in network.layers.items():
            at = join_path(path, name)
            if at in self.inputs:
                layer = self.inputs[at].replace(name=self.inputs[at].name or name)
            layers[name] = self.layer(layer, at)
        inputs = network_inputs(network, layers)
        return _like(network, self.record(graph, layers, inputs, path), inputs)

    def record(
        self,
        graph: Graph,
        layers: MutableMapping[str, Layer],
        inputs: tuple[KerasTensor | None, ...],
        path: str,
        training: bool | None = None,
    ) -> Tree:
        """Records the calls of a graph on other inputs and returns the outputs."""
        names = set(layers)

        def site(number: int, call: Call, tensors: tuple, specs: tuple) -> Site:
            pinned = training if call.training is None else call.training
            at, node = join_path(path, call.layer), graph.node_indices[number]
            return Site(self.where, at, node, call, layers, tensors, specs, pinned, names)

        slots = new_slots(graph, inputs)
        for slot in graph.input_slots:
            number = graph.producer(slot)[0]
            at = site(number, graph.calls[number], (slots[slot],), (graph.specs[slot],))
            if at.path in self.operations:
                slots[slot] = self.operations[at.path](at)

        def record_call(number: int, call: Call) -> Tree:
            tensors = tuple(slots[slot] for slot in call.inputs)
            at = site(number, call, tensors, tuple(graph.specs[slot] for slot in call.inputs))
            return self._outputs(at) if at.path in self.operations else at.keep()

        return run_calls(graph, slots, record_call)

    def _outputs(self, site: Site) -> Tree:
        value = self.operations[site.path](site)
        outputs = structure.match(site.call.value, value)
        if outputs is None or not all(map(is_symbolic, outputs)):
            expected = structure.draw(site.call.value, lambda _: "tensor")
            raise TypeError(
                f"{self.where}: expected {expected} in the place of {site.path!r}, call {site.node}, "
                f"received {value!r}. Return symbolic tensors in this structure."
            )
        return value


def network_inputs(network: Network, layers: Mapping[str, Layer]) -> tuple[KerasTensor, ...]:
    """Returns new symbolic tensors for the inputs of a network, in the order of its graph.

    Args:
        layers: the layers of the new network by the names in the old one.
    """
    names = require_graph(network).input_names
    return tuple(symbolic(cast(InputLayer, layers[name])) for name in names)


def record_graph(
    graph: Graph,
    layers: MutableMapping[str, Layer],
    inputs: tuple[KerasTensor | None, ...],
    where: str,
    *,
    training: bool | None = None,
    operations: Mapping[str, Operation] = MappingProxyType({}),
) -> Tree:
    """Records the calls of a graph on symbolic inputs and returns its outputs.

    Args:
        inputs: the new inputs; None for an optional input that is left out.
        layers: the layers by name; another layer may stand under a name.
        where: the transform, for messages.
        training: the mode of the outer call, for calls without a mode.
        operations: as for `rebuild`, by name of a layer.
    """
    return _Rebuilder(operations, where, None, {}).record(graph, layers, inputs, "", training)


def _resized(network: Network, specs: list[Spec], where: str, path: str) -> Network:
    """Returns a network recorded again for inputs of other shapes."""
    _check_plain(network, where)
    graph, layers = network.graph, dict(network.layers.items())
    for name, spec in zip(graph.input_names, specs, strict=True):
        layers[name] = layers[name].replace(batch_shape=spec.dims)
    inputs = network_inputs(network, layers)
    outputs = _Rebuilder({}, where, None, {}).record(graph, layers, inputs, path)
    return _like(network, outputs, inputs)


def require_graph(network: Network) -> Graph:
    """Returns the graph of a network.

    Raises:
        FKerasError: for a network without a graph.
    """
    if network.graph is None:
        raise FKerasError(
            f"{network._where}: has no graph to rewrite, since its input shapes are not known. Start the "
            "list of layers with fk.Input, or build the model.",
            layer=network._where,
        )
    return network.graph


def runs_graph(network: Network) -> bool:
    """Returns whether the class of a network computes the graph: no subclass that overrides `forward`."""
    kind = type(network)
    return kind.forward is Network.forward and kind.apply is Network.apply


def _check_plain(network: Network, where: str) -> None:
    if not runs_graph(network):
        raise FKerasError(
            f"{where}: expected a model that computes its graph, received {network._where}, whose class "
            "overrides `forward` or `apply`. Take the graph alone: "
            "`model.functional()`.",
            layer=network._where,
        )


def _fit(graph: Graph, specs: list[Spec]) -> bool:
    """Returns whether inputs have the shapes for which a graph was recorded."""
    return all(
        spec is None
        or (
            len(spec.dims) == len(graph.specs[slot].dims)
            and all(
                isinstance(expected, str) or expected == size
                for expected, size in zip(graph.specs[slot].dims, spec.dims, strict=True)
            )
        )
        for slot, spec in zip(graph.input_slots, specs, strict=True)
    )


def plain_model(network: Network, outputs: Tree, inputs: tuple[KerasTensor, ...]) -> Model:
    """Returns the model of new outputs, with the name, marks and inputs of a network."""
    graph = network.graph
    positions = {slot: position for position, slot in enumerate(graph.input_slots)}
    template = structure.map_leaves(
        graph.inputs,
        lambda leaf: (
            structure.Ref(positions[leaf.index]) if isinstance(leaf, structure.Ref) else leaf
        ),
    )
    model = Model(structure.fill(template, inputs), outputs, name=network.name)
    return _with_marks(model, network)


def _like(network: Network, outputs: Tree, inputs: tuple[KerasTensor, ...]) -> Network:
    """Returns the network of new outputs: a `Sequential` where the old one is and a chain remains."""
    model = plain_model(network, outputs, inputs)
    chain = model.graph.chain
    if not isinstance(network, Sequential) or chain is None:
        return model
    members = [model.layers[name] for name in chain]
    empty = Sequential(members, name=network.name)
    sequential = empty.replace(_mask_rule=network._mask_rule)._start_from(inputs[0])
    return _with_marks(sequential, network)


def _with_marks(new: SomeNetwork, network: Network) -> SomeNetwork:
    graph = network.graph
    if graph.depth != "unroll":
        new = new.replace(graph=dataclasses.replace(new.graph, depth=graph.depth))
    # `replace` keeps the marks of the layers inside
    return new.replace(trainable=network.trainable, dtype=network.dtype)


def carry_state(old: Layer, new: Layer, state: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the state of `new`: that of `old` for layers in both, initial for other layers.

    A changed copy of a layer, such as `layer.replace(momentum=0.9)`, keeps the state.
    """
    return _carried(old, new, state, new.init_state() if isinstance(new, Network) else state)


def _carried(
    old: Layer, new: Layer, state: Mapping[str, Any], initial: Mapping[str, Any]
) -> dict[str, Any]:
    before, after, carried = dict(children(old)), dict(children(new)), dict(initial)
    is_copy = _is_copy(old, new)
    for name, value in initial.items():
        was, now = before.get(name), after.get(name)
        if name not in state:
            continue
        if was is None and now is None:
            # an entry of the layer itself
            if is_copy and jax.tree.map(jnp.shape, state[name]) == jax.tree.map(jnp.shape, value):
                carried[name] = state[name]
        elif was is not None and now is not None:
            carried[name] = state[name] if was is now else _carried(was, now, state[name], value)
    return carried


def _is_copy(old: Layer, new: Layer) -> bool:
    """Returns whether a layer is a changed copy of another one, of which it keeps weights."""
    weights = {id(leaf) for leaf in jax.tree.leaves(old)}
    kept = [id(leaf) in weights for leaf in jax.tree.leaves(new)]
    return type(old) is type(new) and new.built and (any(kept) or not (kept or weights))


def _texts(specs: Any) -> str:
    return ", ".join(str(spec) for spec in specs) or "no tensors"
