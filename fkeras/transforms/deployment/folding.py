"""Folding: a model with fewer calls that computes in inference what the model computes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from fkeras import layers
from fkeras.engine.call.inference import key_spec, run_call
from fkeras.engine.call.mask_rules import mask_leaves
from fkeras.engine.call.node import record
from fkeras.engine.graph.call_table import Call, Coord
from fkeras.engine.graph.graph import Graph
from fkeras.engine.graph.walk import new_slots, run_calls
from fkeras.engine.layer.layer import Layer
from fkeras.engine.messages.errors import FKerasError, describe_value
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.engine.migration_hints.dropped import returned
from fkeras.engine.network.network import Network
from fkeras.engine.symbolic.operators import KerasTensor
from fkeras.engine.tree.skeleton import leaves_of
from fkeras.engine.tree.sublayers import children, sublayers
from fkeras.engine.tree.walk import join_path
from fkeras.engine.values import structure
from fkeras.engine.values.annotations import SomeLayer, Tree
from fkeras.engine.values.argument_types import Inputs
from fkeras.engine.values.spec import STRING, as_probes
from fkeras.engine.values.structure import fill_arrays, fill_tensors
from fkeras.transforms.comparison.checking import require_agreement
from fkeras.transforms.deployment.merging import (
    is_padding,
    is_plain,
    takes_padding,
    with_normalization,
    with_padding,
    with_shape,
)
from fkeras.transforms.graph.rebuilding import Operation, Site, rebuild, require_graph, runs_graph
from fkeras.transforms.graph.surgery import State, check_model

# size of unknown axes, where a call is traced
_SIZE = 32


class Unfolded(NamedTuple):
    """A call that `fold` leaves in the model.

    Attributes:
        path: the path of the layer.
        node: the index of the call among the layer's calls.
        reason: why the call stays.
    """

    path: str
    node: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}, call {self.node}: {self.reason}"


@hides_internal_frames
def fold(
    model: SomeLayer, state: State, *, check: Inputs | None = None
) -> tuple[SomeLayer, dict[str, Any]]:
    """Returns `(model, state)` with fewer calls and the same values in inference.

    - A `BatchNormalization` becomes part of the convolution (also depthwise, separable and
      transposed) or `Dense` before it. Kernel and bias are computed in float64 and rounded once.
    - Calls that return their input in inference leave: `Dropout`, noise, random augmentation,
      `Identity`, `Activation("linear")`, `ActivityRegularization`.
    - `ZeroPadding` becomes the padding "same" or "causal" of the convolution behind it, where these
      pad the same cells.
    - Successive `Permute` layers become one, and so do successive `Reshape` and `Flatten` layers.
    - Calls on constants alone become constants.

    Nested networks are folded inside. `transforms.unfolded` lists the calls that stay, with the
    reasons. The result is for inference: penalties, constraints and dropout are gone. All other
    layers keep their names, weights and state. `fk.quantize` takes the result.

    Args:
        model: a built model with a graph.
        state: the state of the model, such as `run.state`; {} for a model without state.
        check: inputs on which both models are compared, as by `transforms.agree`: the outputs, and
            the calls of all layers that stay the same; None for no comparison.

    Raises:
        ValueError: for a state without the statistics of a normalization; if the result disagrees
            on `check`.
        FKerasError: for a model without a graph, and for traced weights.

    Example:
        >>> import jax, fkeras as fk
        >>> from fkeras import layers, transforms
        >>> entries = [layers.Conv2D(4, 3), layers.BatchNormalization(), layers.ReLU(), layers.Dropout(0.1)]
        >>> model = fk.Sequential([fk.Input((8, 8, 3)), *entries]).build(jax.random.key(0))
        >>> folded, state = transforms.fold(model, model.init_state())
        >>> list(folded.layers), state
        (['input_layer', 'conv2d', 're_lu'], {})
    """
    new, remaining, _ = _fold(model, state, "transforms.fold")
    if check is not None:
        require_agreement(
            "transforms.fold",
            (model, state),
            (new, remaining),
            check,
            changed=_changed(model, new),
        )
    return returned(
        (new, remaining), "transforms.fold", "model, state = transforms.fold(model, state)", depth=2
    )


@hides_internal_frames
def unfolded(model: Layer, state: State) -> tuple[Unfolded, ...]:
    """Returns the normalizations, paddings and layers for training that `fold` leaves in a model.

    Args:
        model: as for `fold`.
        state: as for `fold`.

    Raises:
        ValueError: as for `fold`.
        FKerasError: as for `fold`.

    Example:
        >>> import jax, fkeras as fk
        >>> from fkeras import layers, transforms
        >>> entries = [layers.Conv2D(4, 3, activation="relu"), layers.BatchNormalization(name="bn")]
        >>> model = fk.Sequential([fk.Input((8, 8, 3)), *entries]).build(jax.random.key(0))
        >>> for call in transforms.unfolded(model, model.init_state()):
        ...     print(call)
        bn, call 0: 'conv2d' has an activation, which comes before the normalization
    """
    return tuple(_fold(model, state, "transforms.unfolded")[2])


def _changed(model: Any, new: Any) -> frozenset[str]:
    """Returns the paths of layers whose values folding changes: not networks, nor outputs."""
    before = dict(sublayers(model))
    paths = {p for p, layer in sublayers(new) if p in before and before[p] is not layer}
    networks = {path for path in paths if isinstance(before[path], Network)}
    return frozenset(paths - networks - set(model.output_names))


def _fold(model: Any, state: Any, where: str) -> tuple[Any, dict[str, Any], list[Unfolded]]:
    check_model(model, where)
    if not isinstance(state, Mapping):
        raise TypeError(
            f"{where}: expected the state of the model as a dictionary, received "
            f"{describe_value(state)}. Pass run.state or model.init_state(); {{}} for a model without "
            "state."
        )
    if not isinstance(model, Network):
        raise FKerasError(
            f"{where}: expected a model with a graph, received {model._where}, whose `forward` calls "
            "its layers. Write the model with fk.Model or fk.Sequential.",
            layer=model._where,
        )
    require_graph(model)
    kept: list[Unfolded] = []
    operations = dict(_operations(model, "", state, kept, where))
    new = rebuild(model, operations, where) if operations else model
    return new, _remaining(new, state), kept


def _operations(
    layer: Layer, path: str, state: State, kept: list[Unfolded], where: str
) -> Iterator[tuple[str, Operation]]:
    """Yields path and operation of the layers that the graphs inside a layer call."""
    here = _Folding(layer, path, state, kept) if isinstance(layer, Network) else None
    for name, child in children(layer):
        at = join_path(path, name)
        if not any(isinstance(inside, Network) for _, inside in sublayers(child)):
            if here is not None and name not in here.graph.input_names:
                yield at, here.operation
            continue
        pinned = [] if here is None else _pinned_calls(here.graph, name)
        if not _is_open(child):
            kept.append(Unfolded(at, 0, "calls the layers inside in a way of its own"))
        elif pinned:
            kept.append(Unfolded(at, pinned[0], "is called with training=True"))
        else:
            yield from _operations(child, at, state.get(name, {}), kept, where)


def _is_open(layer: Layer) -> bool:
    """Returns whether the calls inside a layer are those of graphs, in the mode of its own call."""
    if isinstance(layer, Network):
        return layer.graph is not None and runs_graph(layer)
    return type(layer) is layers.TimeDistributed


def _pinned_calls(graph: Graph, name: str) -> list[int]:
    """Returns the indices of the calls of a layer that pin training=True."""
    calls = enumerate(graph.calls_of[name])
    return [node for node, number in calls if graph.calls[number].training]


class _Folding:
    """The calls of one graph, and what each becomes.

    Attributes:
        identities: the calls that return their inputs.
        constants: by slot, the values of calls on constants.
        sources: for each slot, the slot of the same value in front of identities.
        consumers: by source, the layers that take the value.
    """

    def __init__(self, network: Network, path: str, state: State, kept: list[Unfolded]):
        graph = network.graph
        self.network, self.graph, self.path, self.state = network, graph, path, state
        self.kept = kept
        self.identities: set[int] = set()
        self.constants: dict[int, Any] = {}
        self.sources: list[Any] = new_slots(graph, graph.input_slots)
        self.consumers: dict[int, list[str]] = {}
        run_calls(graph, self.sources, self._read)
        for slot in graph.output_slots:
            self.consumers.setdefault(self.sources[slot], []).append("the outputs of the model")

    def _read(self, number: int, call: Call) -> Tree:
        """Returns the sources of the outputs of a call, in their structure."""
        graph = self.graph
        layer, slots = self.network.layers[call.layer], graph.output_slots_of(number)
        pinned = bool(call.training)
        if _is_identity(layer, graph, number, training=pinned):
            self.identities.add(number)
            return structure.fill(call.value, [self.sources[slot] for slot in call.inputs])
        if pinned and _is_identity(layer, graph, number, training=False):
            self._keep(graph.coords[slots[0]], "is called with training=True")
        for slot in call.inputs:
            self.consumers.setdefault(self.sources[slot], []).append(repr(call.layer))
        values = [self.constants.get(self.sources[slot]) for slot in call.inputs]
        known = layer.built and all(value is not None for value in values)
        if known and not pinned and not any(call.masks):
            args = fill_arrays(call.signature.args, values)
            options = fill_arrays(call.signature.options, values)
            value = layer.apply(*args, state=self.state.get(call.layer), **options).value
            self.constants.update(zip(slots, structure.number(value)[1], strict=True))
        return structure.fill(call.value, slots)

    def operation(self, site: Site) -> Tree:
        """Records a call, merged with the call before where one layer computes both."""
        number = self.graph.call_number(site.call.layer, site.node)
        if number in self.identities:
            return structure.fill(site.call.value, site.tensors)
        layer, inputs = site.layer, site.call.inputs
        merged = None
        if isinstance(layer, layers.BatchNormalization):
            merged = self._normalized(site, layer)
        elif len(inputs) == 1 and takes_padding(layer):
            merged = self._padded(site, layer)
        elif len(inputs) == 1:
            merged = self._reshaped(site, layer)
        if merged is not None:
            return merged
        pairs = zip(inputs, site.tensors, strict=True)
        values = [self.constants.get(self.sources[slot], tensor) for slot, tensor in pairs]
        if layer.built and any(a is not b for a, b in zip(values, site.tensors, strict=True)):
            # an array among the arguments is a constant of the call
            signature = site.call.signature
            args, options = (fill_tensors(t, values) for t in (signature.args, signature.options))
            return record(layer, args, options, site.training, signature.mask_rule, KerasTensor)
        return site.keep()

    def _normalized(self, site: Site, norm: layers.BatchNormalization) -> Tree | None:
        """Records the layer before a normalization with both computations."""
        coord = Coord(site.call.layer, site.node, 0)
        if site.training:
            return self._keep(coord, "is called with training=True")
        if len(site.tensors) != 1:
            return self._keep(coord, "takes a mask as an argument")
        source, node = self.sources[site.call.inputs[0]], site.tensors[0].node
        statistics = self._statistics(site, norm)
        new = with_normalization(node.layer, norm, statistics, site.tensors[0].spec)
        if isinstance(new, str):
            return self._keep(coord, new)
        name = repr(node.layer.name)
        others = list(self.consumers[source])
        others.remove(repr(site.call.layer))
        if others:
            listed = ", ".join(dict.fromkeys(others))
            return self._keep(coord, f"the output of {name} is also used by {listed}")
        if (count := self._call_count(source)) > 1:
            return self._keep(coord, f"{name} is called {count} times")
        if self.graph.masks[source] != site.call.masks[0]:
            return self._keep(coord, f"the mask behind {name} changes")
        signature = node.signature
        args, options = (
            fill_tensors(template, node.inputs) for template in (signature.args, signature.options)
        )
        return record(new, args, options, signature.training, signature.mask_rule)

    def _statistics(self, site: Site, norm: layers.BatchNormalization) -> Mapping[str, Any]:
        statistics = self.state.get(site.call.layer)
        entries = statistics if isinstance(statistics, Mapping) else {}
        size = site.tensors[0].shape[norm.axis]
        for name in ("moving_mean", "moving_variance"):
            shape = np.shape(entries[name]) if name in entries else None
            if shape != (size,):
                raise ValueError(
                    f"{site.where}: expected {name} of {site.path!r} in the state, with the shape "
                    f"{(size,)}, received {'none' if shape is None else shape}. Pass the state of this "
                    "model: run.state, or model.init_state()."
                )
        return entries

    def _padded(self, site: Site, layer: Layer) -> Tree | None:
        """Records a convolution with the padding of the layer before."""
        source, node = self.sources[site.call.inputs[0]], site.tensors[0].node
        if not is_padding(node.layer):
            return None
        coord = self.graph.coords[source]
        new = with_padding(node.layer, layer, node.inputs[0].spec)
        if isinstance(new, str):
            return self._keep(coord, new)
        if (count := len(self.graph.calls_of[site.call.layer])) > 1:
            return self._keep(coord, f"{site.call.layer!r} is called {count} times")
        return site.on(node.inputs).put(new)

    def _reshaped(self, site: Site, second: Layer) -> Tree | None:
        """Records one transposition or reshape for two."""
        node = site.tensors[0].node
        if len(node.inputs) != 1:
            return None
        new = with_shape(node.layer, second, node.inputs[0].spec)
        if new is None:
            return None
        if is_plain(new, node.inputs[0].spec, site.call.outputs[0]):
            return structure.fill(site.call.value, node.inputs)
        if new is not second and len(self.graph.calls_of[site.call.layer]) > 1:
            new = site.unique(new)
        return site.on(node.inputs).put(new)

    def _call_count(self, slot: int) -> int:
        return len(self.graph.calls_of[self.graph.coords[slot].layer])

    def _keep(self, coord: Coord, reason: str) -> None:
        self.kept.append(Unfolded(join_path(self.path, coord.layer), coord.node, reason))


def _is_identity(layer: Layer, graph: Graph, number: int, *, training: bool) -> bool:
    """Returns whether each output of a call is an input: the traced program is empty."""
    call = graph.calls[number]
    specs, masks = graph.input_specs(number)
    if call.outputs != specs or call.masks != masks or not specs or not layer.built:
        return False
    # a layer with weights uses them
    if leaves_of(layer) or any(spec.dtype == STRING for spec in specs):
        return False
    recorded = call.signature.recorded._replace(training=training)
    shapes = structure.fill_specs(recorded.args, specs)
    effects: list[str] = []

    def compute(key: Any, tensors: Any, tensor_masks: Any) -> Any:
        out = run_call(layer, recorded, shapes, key, tensors, tensor_masks)
        effects.extend((*out.updates, *out.metrics))
        if type(layer) is not layers.ActivityRegularization:  # it has no other purpose
            effects.extend("loss" for _ in out.losses)
        value, outputs = structure.number(out.value)
        return outputs, mask_leaves(value, out.mask)

    try:
        arrays = tuple(as_probes(specs, _SIZE)), tuple(as_probes(masks, _SIZE))
        program = jax.make_jaxpr(compute)(key_spec(), *arrays).jaxpr
    except Exception:  # a layer of a user may reject this size
        return False
    return not effects and not program.effects and program.outvars == program.invars[1:]


def _remaining(layer: Layer, state: State) -> dict[str, Any]:
    """Returns the entries of a state whose layers are still there."""
    if not _is_open(layer):
        return dict(state)
    inside = dict(children(layer))
    entries = {
        name: _remaining(inside[name], entry) for name, entry in state.items() if name in inside
    }
    return {name: entry for name, entry in entries.items() if entry}
