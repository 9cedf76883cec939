"""Rewrites networks: renames layers, opens nested networks, separates layers of strings.

Each function records the calls of a closed graph again and keeps the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from fkeras.engine.call.network_inputs import match_inputs
from fkeras.engine.call.node import record
from fkeras.engine.graph.call_table import Call
from fkeras.engine.graph.graph import Graph
from fkeras.engine.graph.walk import new_slots, run_calls
from fkeras.engine.layer.layer import Layer
from fkeras.engine.messages.errors import FKerasError, suggest
from fkeras.engine.models.model import Model
from fkeras.engine.network.host_split import on_host, split
from fkeras.engine.network.network import Network
from fkeras.engine.symbolic.input import InputLayer, symbolic
from fkeras.engine.values import structure
from fkeras.engine.values.structure import fill_tensors


def rename(
    model: Network,
    names: Mapping[str, str] | Callable[[str], str] | None = None,
    *,
    prefix: str = "",
) -> Model:
    """Returns the model with other layer names, so that two models can be merged.

    Layers inside nested networks keep their names, which are unique already. A state has the
    layers' names as keys: rename them too, `{new_name(k): v for k, v in state.items()}`.

    Args:
        model: a model, or a Sequential with a graph.
        names: new names by old name, or a function from old to new names.
        prefix: a prefix for every name, new or old.

    Raises:
        ValueError: for an unknown name, and for names that are not unique.

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
                f"{model._where}: there is no layer {unknown!r} to rename."
                f"{suggest(unknown, model.layers)} Existing layers are: {', '.join(model.layers)}."
            )
    new_name = names if callable(names) else lambda name: str((names or {}).get(name, name))
    # the weights stay the same arrays: only names change
    renamed = {
        name: layer.replace(name=prefix + new_name(name)) for name, layer in model.layers.items()
    }
    return _rerecord(model, renamed, ())


def inline(model: Network, name: str) -> Model:
    """Returns the model with the calls of the nested network `name` in the graph of the model.

    The layers of the network get names such as "name_dense", and their state moves to the model's
    level. Values stay the same, except that layers draw other random numbers.

    Args:
        model: a model with a graph.
        name: the name of a network among the layers of the model.

    Raises:
        TypeError: for a layer that is no network.
        ValueError: for an unknown name.

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
            f"{model._where}: inline expected the name of a network, received {nested._where}, which "
            "has no graph. Pass the name of a fk.Model or fk.Sequential among the layers."
        )
    # inputs of the nested network disappear: the tensors of the outer graph take their place
    inner = {
        key: layer.replace(name=f"{name}_{key}")
        for key, layer in nested.layers.items()
        if key not in nested.input_names
    }
    return _rerecord(model, dict(model.layers), ((name, inner),))


def split_host(model: Network) -> tuple[Model, Model]:
    """Splits a model that begins with strings: `model(x)` equals `device(host(x))`.

    A model with strings can be called without a split: its text and lookup layers run with NumPy, the
    rest is one compiled program. The split allows to map the data once in advance, and to use the
    rest in `jax.jit`, a `Trainer` or an export. `fk.Model(host.inputs, device(host.outputs))` joins
    the two models again.

    Args:
        model: a model with inputs of the dtype "string".

    Returns:
        Two models. `host` takes the inputs of `model` and returns NumPy arrays: a single array, or
        several in a dictionary by the names of the layers and inputs that they come from. `device`
        takes these arrays, holds all weights, and has the state of `model`.

    Raises:
        FKerasError: for a model without strings, for a model that runs entirely on the host, and for
            a layer that takes both strings and arrays computed on the device.

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
    if isinstance(model, Network) and model._makes_strings:
        raise FKerasError(
            f"{model._where}: returns strings, which are computed on the host after the device part. "
            "Leave the strings out: fk.Model(model.inputs, model.tensor(name_of_a_layer)).",
            layer=model._where,
        )
    if not isinstance(model, Network) or not model._reads_strings:
        where = model._where if isinstance(model, Layer) else type(model).__name__
        raise FKerasError(
            f"{where}: split_host expected a model with a string input, received a model without "
            'string inputs. A string input is fk.Input((), dtype="string"); other models need no '
            "split."
        )
    if on_host(model):
        raise FKerasError(
            f"{model._where}: computes on the host only, so the device part would be empty. Call the "
            "model on the data.",
            layer=model._where,
        )
    host, device = split(model, lambda x, y, name: Model(x, y, name=name))
    return host, device.replace(trainable=model.trainable)


def _rerecord(model: Network, layers: Mapping[str, Layer], inlined: tuple) -> Model:
    graph = model.graph
    if graph is None:
        raise FKerasError(
            f"{model._where}: has no graph to rewrite, since its input shapes are not known. Start the "
            "list of layers with fk.Input, or build the model.",
            layer=model._where,
        )
    tensors = [symbolic(cast(InputLayer, layers[name])) for name in graph.input_names]
    slots = new_slots(graph, tensors)
    outputs = _replay(graph, layers, slots, dict(inlined), None)
    inputs = structure.fill(graph.inputs, slots)
    # replace keeps the marks of the layers inside
    return Model(inputs, outputs, name=model.name).replace(trainable=model.trainable)


def _replay(
    graph: Graph, layers: Mapping[str, Layer], slots: list, inlined: Mapping, training: bool | None
) -> Any:
    """Records the calls of a graph again, on the tensors in `slots`, and returns the outputs.

    Args:
        training: the pin of the outer call, for calls without a pin.
    """

    def record_again(_: int, call: Call) -> Any:
        layer = layers[call.layer]
        args, options = fill_tensors(call.args, slots), fill_tensors(call.options, slots)
        call_training = training if call.training is None else call.training
        if call.layer not in inlined:
            return record(layer, args, options, call_training, call.mask_rule)
        if options:
            raise FKerasError(
                f"{layer._where}: is called with {', '.join(options)}, which its layers would "
                "not receive. Keep the network nested.",
                layer=layer._where,
            )
        return _open_call(layer, inlined[call.layer], args, call_training)

    return run_calls(graph, slots, record_again)


def _open_call(
    network: Any, layers: Mapping[str, Layer], args: tuple, training: bool | None
) -> Any:
    graph = network.graph
    tensors = match_inputs(network, args)
    for slot, tensor in zip(graph.input_slots, tensors, strict=True):
        # the opened calls would receive the tensor without the network's cast
        if tensor.dtype != graph.specs[slot].dtype:
            raise FKerasError(
                f"{network._where}: expects {graph.specs[slot].dtype} and casts its input of "
                f"{tensor.dtype}. Keep the network nested, or cast before the network.",
                layer=network._where,
            )
    return _replay(graph, layers, new_slots(graph, tensors), {}, training)
