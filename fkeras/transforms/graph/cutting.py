"""Cuts the part of a model between tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

from fkeras.engine.messages.errors import FKerasError
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.engine.models.model import Model
from fkeras.engine.network.network import Network
from fkeras.engine.symbolic.input import InputLayer
from fkeras.engine.symbolic.operators import KerasTensor
from fkeras.engine.values import structure
from fkeras.engine.values.annotations import Tree
from fkeras.transforms.graph.rebuilding import network_inputs, record_graph
from fkeras.transforms.graph.rewriting import inline
from fkeras.transforms.graph.selecting import Place, Selected, select_all
from fkeras.transforms.graph.surgery import State, check_model, result_with_state


@overload
def cut(
    model: Network,
    inputs: Place | Sequence[Place] | None = None,
    outputs: Place | Sequence[Place] | None = None,
    *,
    name: str | None = None,
) -> Model: ...


@overload
def cut(
    model: Network,
    inputs: Place | Sequence[Place] | None = None,
    outputs: Place | Sequence[Place] | None = None,
    *,
    name: str | None = None,
    state: State,
) -> tuple[Model, dict[str, Any]]: ...


@hides_internal_frames
def cut(
    model: Network,
    inputs: Any = None,
    outputs: Any = None,
    *,
    name: str | None = None,
    state: State | None = None,
) -> Any:
    """Returns the part of a model between tensors: `cut(m, "a")(cut(m, outputs="a")(x))` is `m(x)`.

    A nested network is opened where a path leads into it, and its layers get names such as
    "encoder_block3".

    Args:
        model: a model with a graph.
        inputs: selectors of the tensors that the part takes, such as the name of a layer for its
            output; None for those inputs of the model that the part needs. Optional inputs that are
            not selected are left out, as in a call without them.
        outputs: selectors of the tensors that the part returns; None for the outputs of the model.
            One selector of one tensor gives one tensor, otherwise a list.
        name: the name of the part.
        state: the state of the model; the result is then `(part, state)`.

    Raises:
        ValueError: if no layer matches, and for a layer with several calls or outputs without
            coordinates.
        DisconnectedGraphError: if an output needs a tensor that is not among the inputs.
        FKerasError: if a layer needs the value of an optional input that is not selected.

    Example:
        >>> import fkeras as fk
        >>> from fkeras import transforms
        >>> model = fk.Sequential([fk.Input((4,)), fk.layers.Dense(3, name="a"), fk.layers.Dense(2)])
        >>> list(transforms.cut(model, outputs="a").layers)
        ['input_layer', 'a']
        >>> transforms.cut(model, inputs="a").inputs.shape
        (None, 3)
    """
    where = "transforms.cut"
    check_model(model, where)
    selected = [
        None if part is None else [*select_all(model, part, where, opened=True)]
        for part in (inputs, outputs)
    ]
    opened, (starts, ends), state = _opened(model, selected, state)
    end = opened.outputs if ends is None else _tensors(opened, ends, outputs, where)
    if starts is None:
        start, omitted = _needed(opened, end), []
    else:
        start = _tensors(opened, starts, inputs, where)
        layers = ((tensor, tensor.node.layer) for tensor in _reached(end, start))
        omitted = [t for t, layer in layers if isinstance(layer, InputLayer) and layer.optional]
    part = _part(start, end, omitted, name, model.dtype, where).replace(trainable=model.trainable)
    return result_with_state(
        opened, part, state, where, "part = transforms.cut(model, outputs=name)"
    )


def _opened(
    model: Network, selected: list[list[Selected] | None], state: State | None
) -> tuple[Network, list[list[Selected] | None], State | None]:
    """Returns the model without the nested networks into which a path leads."""
    while True:
        inside = [one.path for group in selected for one in group or () if "/" in one.path]
        if not inside:
            return model, selected, state
        name = inside[0].partition("/")[0]
        # the layers of an opened network are named "network_layer"
        selected = [
            group and [one._replace(path=_opened_path(one.path, name)) for one in group]
            for group in selected
        ]
        if state is None:
            model = inline(model, name)
        else:
            model, state = inline(model, name, state)


def _opened_path(path: str, name: str) -> str:
    return f"{name}_{path[len(name) + 1 :]}" if path.startswith(f"{name}/") else path


def _tensors(model: Network, selected: list[Selected], places: Any, where: str) -> Any:
    tensors = [_tensor(model, one, where) for one in selected]
    return tensors if isinstance(places, list) or len(tensors) > 1 else tensors[0]


def _tensor(model: Network, one: Selected, where: str) -> KerasTensor:
    graph = model.graph
    if one.path not in graph.calls_of:
        raise ValueError(
            f"{where}: {one.path!r} is an input of an opened network. Name the tensor that the network "
            f"takes. Existing layers are: {', '.join(graph.layers)}."
        )
    calls = graph.calls_of[one.path]
    if one.node is None and len(calls) > 1:
        raise ValueError(
            f"{where}: {one.path!r} is called {len(calls)} times. Give coordinates: ({one.path!r}, 0)."
        )
    node = one.node or 0
    outputs = len(graph.calls[graph.call_number(one.path, node)].outputs)
    if one.tensor is None and outputs > 1:
        raise ValueError(
            f"{where}: {one.path!r} has {outputs} outputs. Give coordinates: ({one.path!r}, {node}, 0)."
        )
    return model.tensor(one.path, node, one.tensor or 0)


def _part(
    start: Tree, end: Tree, omitted: list[KerasTensor], name: str | None, dtype: Any, where: str
) -> Model:
    """Returns the model from `start` to `end` without the optional inputs `omitted`."""
    if not omitted:
        return Model(start, end, name=name).replace(dtype=dtype)
    template, tensors = structure.number(start)
    whole = Model([*tensors, *omitted], end)
    layers = dict(whole.layers.items())
    kept = network_inputs(whole, layers)[: len(tensors)]
    try:
        outputs = record_graph(whole.graph, layers, (*kept, *[None] * len(omitted)), where)
    except FKerasError as error:
        names = ", ".join(repr(tensor.name) for tensor in omitted)
        raise FKerasError(
            f"{where}: expected the optional inputs {names} among the selected inputs, since "
            f"{error.layer!r} cannot compute without a value. Select them too: inputs=[..., {names}].",
            layer=error.layer,
        ) from error
    return Model(structure.fill(template, kept), outputs, name=name).replace(dtype=dtype)


def _reached(outputs: Tree, start: Tree = ()) -> Iterator[KerasTensor]:
    """Yields the tensors from which `outputs` are computed, up to the tensors `start`."""
    pending = [*structure.number(outputs)[1]]
    seen = {(tensor.node, tensor.index) for tensor in structure.number(start)[1]}
    while pending:
        tensor = pending.pop()
        if (tensor.node, tensor.index) not in seen:
            seen.add((tensor.node, tensor.index))
            yield tensor
            pending.extend(tensor.node.inputs)


def _needed(model: Network, outputs: Tree) -> Tree:
    """Returns those inputs of a model that outputs need, in their structure."""
    seen = {tensor.node for tensor in _reached(outputs)}
    template, tensors = structure.number(model.inputs)
    kept = [index for index, tensor in enumerate(tensors) if tensor.node in seen]
    if len(kept) in (0, len(tensors)):
        return model.inputs
    if len(kept) == 1:
        return tensors[kept[0]]
    return structure.fill(_pruned(template, kept), tensors)


def _pruned(template: structure.Branch, kept: list[int]) -> structure.Branch:
    """Returns a template without the places that are not kept."""
    parts: list[tuple[Any, Any]] = []
    for key, child in zip(template.keys or template.children, template.children, strict=True):
        if isinstance(child, structure.Branch):
            child = _pruned(child, kept)
            if child.children:
                parts.append((key, child))
        elif isinstance(child, structure.Ref) and child.index in kept:
            parts.append((key, child))
    keys = tuple(key for key, _ in parts) if template.kind == "dict" else ()
    children = tuple(child for _, child in parts)
    return structure.Branch(template.kind, keys, children, template.by_call)
