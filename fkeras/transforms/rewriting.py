"""Networks rewritten: layers renamed, nested networks opened, what strings need cut off.

All record the calls of a closed graph once more; the weights are the same arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fkeras.engine.call.call_arguments import fill_tensors
from fkeras.engine.call.network_inputs import match_inputs
from fkeras.engine.call.record import record
from fkeras.engine.graph.graph import Call, Graph
from fkeras.engine.graph.walk import new_slots, run_calls
from fkeras.engine.layer.layer import Layer
from fkeras.engine.messages.errors import FKerasError, suggest
from fkeras.engine.models.model import Model
from fkeras.engine.network.host_split import on_host, split
from fkeras.engine.network.network import Network
from fkeras.engine.symbolic.input import symbolic
from fkeras.engine.values import structure


def rename(
    model: Network,
    names: Mapping[str, str] | Callable[[str], str] | None = None,
    *,
    prefix: str = "",
) -> Model:
    """The same graph and weights with other layer names, so that two models can be merged.

    Names of layers inside nested networks stay: they are apart already. A state goes by the layers'
    names: `{new_name(k): v for k, v in state.items()}`.

    Args:
        model: a model or Sequential that has met its inputs.
        names: new names by old name, or a function from old to new names.
        prefix: what is put before every name, new or old.

    Raises:
        ValueError: for a name that the model does not have, or names that are no longer unique.

    Example:
        >>> import fkeras as fk
        >>> x = fk.Input((4,), name="x")
        >>> one = fk.Model(x, fk.layers.Dense(2, name="head")(x))
        >>> two = fk.rename(one, prefix="other_")
        >>> fk.Model([one.inputs, two.inputs], [one.outputs, two.outputs]).output_names
        ('head', 'other_head')
    """
    if isinstance(names, Mapping):
        unknown = next((n for n in names if n not in model.layers), None)
        if unknown is not None:
            raise ValueError(
                f"{model.where}: there is no layer {unknown!r} to rename."
                f"{suggest(unknown, model.layers)} Existing layers are: {', '.join(model.layers)}."
            )
    new_name = names if callable(names) else lambda name: (names or {}).get(name, name)
    renamed = {
        name: layer.replace(name=prefix + new_name(name)) for name, layer in model.layers.items()
    }
    return _rerecord(model, renamed, ())


def inline(model: Network, name: str) -> Model:
    """The model with the calls of the nested network `name` put into its own graph.

    Its layers are then called "name_dense" and so on, and their state stands beside the others'.
    Values are the same; layers that draw random numbers draw others.

    Args:
        model: a model that has met its inputs.
        name: the name of a network among its layers.

    Raises:
        TypeError: where that layer is no network.
        ValueError: where there is no such layer.

    Example:
        >>> import fkeras as fk
        >>> x = fk.Input((4,), name="x")
        >>> encoder = fk.Sequential([fk.layers.Dense(3), fk.layers.Dense(2)], name="encoder")
        >>> list(fk.inline(fk.Model(x, encoder(x)), "encoder").layers)
        ['x', 'encoder_dense', 'encoder_dense_1']
    """
    nested = model.get_layer(name)
    if not isinstance(nested, Network):
        raise TypeError(
            f"{model.where}: inline expected the name of a network, received {nested.where}, which "
            "has no graph. Name a fk.Model or fk.Sequential among its layers."
        )
    inner = {
        key: layer.replace(name=f"{name}_{key}")
        for key, layer in nested.layers.items()
        if key not in nested.input_names
    }
    return _rerecord(model, dict(model.layers), ((name, inner),))


def split_host(model: Network) -> tuple[Model, Model]:
    """`(host, device)`: a model that begins with strings as two, `model(x)` being `device(host(x))`.

    A model of strings computes as it is: its text and lookup layers run with NumPy, the rest is one
    program. Cut in two, the data are mapped once and before, and the rest goes wherever a model of
    numbers goes: into `jax.jit`, a `Trainer`, an export. `fk.Model(host.inputs,
    device(host.outputs))` puts them together again.

    Args:
        model: a model with inputs of the dtype "string".

    Returns:
        Two models. `host` takes what `model` takes and gives NumPy arrays, one alone or several in a
        dictionary by the names of the layers and inputs that they come from; `device` takes that and
        holds all weights. The state of `model` is that of `device`.

    Raises:
        FKerasError: where the model has no strings, computes on the host alone, or a layer needs
            strings and, beside them, what the device computed.

    Example:
        >>> import jax, fkeras as fk
        >>> texts = fk.Input((), dtype="string")
        >>> ids = fk.layers.TextVectorization(vocabulary=["one", "two"])(texts)
        >>> model = fk.Model(texts, fk.layers.Embedding(4, 3)(ids)).build(jax.random.key(0))
        >>> host, device = fk.split_host(model)
        >>> host(["one two", "two"])
        array([[2, 3],
               [3, 0]], dtype=int32)
        >>> device(host(["one two", "two"])).shape
        (2, 2, 3)
    """
    if isinstance(model, Network) and model.makes_strings:
        raise FKerasError(
            f"{model.where}: returns strings, which are made on the host after the device. Leave "
            "them out: fk.Model(model.inputs, model.tensor(name_of_a_layer)).",
            layer=model.where,
        )
    if not isinstance(model, Network) or not model.reads_strings:
        where = model.where if isinstance(model, Layer) else type(model).__name__
        raise FKerasError(
            f"{where}: split_host expected a model with an input of strings, received one without. "
            'Such a one begins with fk.Input((), dtype="string"); others run as they are.'
        )
    if on_host(model):
        raise FKerasError(
            f"{model.where}: computes on the host alone, so there is nothing for the device. Call "
            "it on the data as it is.",
            layer=model.where,
        )
    host, device = split(model, lambda x, y, name: Model(x, y, name=name))
    return host, device.replace(trainable=model.trainable)


def _rerecord(model: Network, layers: Mapping[str, Layer], opened: tuple) -> Model:
    graph = model.graph
    if graph is None:
        raise FKerasError(
            f"{model.where}: has met no inputs, so it has no graph to rewrite. Start it with "
            "fk.Input, or build it.",
            layer=model.where,
        )
    tensors = [symbolic(layers[name]) for name in graph.input_names]
    slots = new_slots(graph, tensors)
    outputs = _replay(graph, layers, slots, dict(opened), None)
    inputs = structure.fill(graph.inputs, slots)
    # replaced, not passed: layers inside keep their own marks
    return Model(inputs, outputs, name=model.name).replace(trainable=model.trainable)


def _replay(
    graph: Graph, layers: Mapping[str, Layer], slots: list, opened: Mapping, training: bool | None
) -> Any:
    """Records the calls of a graph again, on the tensors in `slots`; returns the outputs."""

    def record_again(_: int, call: Call) -> Any:
        layer = layers[call.layer]
        args, options = fill_tensors(call.args, slots), fill_tensors(call.options, slots)
        pinned = training if call.training is None else call.training
        if call.layer not in opened:
            return record(layer, args, options, pinned, call.mask_rule)
        if options:
            raise FKerasError(
                f"{layer.where}: is called with {', '.join(options)}, which its layers would "
                "not receive. Keep it nested.",
                layer=layer.where,
            )
        return _open_call(layer, opened[call.layer], args, pinned)

    return run_calls(graph, slots, record_again)


def _open_call(
    network: Any, layers: Mapping[str, Layer], args: tuple, training: bool | None
) -> Any:
    graph = network.graph
    tensors = match_inputs(network, args)
    for slot, tensor in zip(graph.input_slots, tensors, strict=True):
        if tensor.dtype != graph.specs[slot].dtype:
            raise FKerasError(
                f"{network.where}: expects {graph.specs[slot].dtype} and is called on "
                f"{tensor.dtype}, which it casts. Keep it nested, or cast before it.",
                layer=network.where,
            )
    return _replay(graph, layers, new_slots(graph, tensors), {}, training)
