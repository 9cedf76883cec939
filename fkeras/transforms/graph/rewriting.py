"""Rewrites networks: renames layers, opens nested networks, separates layers of strings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, overload

from fkeras.engine.call.network_inputs import match_inputs
from fkeras.engine.call.strings import makes_strings, reads_strings
from fkeras.engine.layer.layer import Layer
from fkeras.engine.messages.errors import FKerasError, suggest
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.engine.migration_hints.dropped import returned
from fkeras.engine.models.model import Model
from fkeras.engine.network.network import Network
from fkeras.engine.strings.cut import on_host, split
from fkeras.engine.values.annotations import Tree
from fkeras.transforms.graph.rebuilding import Site, network_inputs, plain_model, record_graph


@overload
def rename(
    model: Network,
    names: Mapping[str, str] | Callable[[str], str] | None = None,
    *,
    prefix: str = "",
) -> Model: ...


@overload
def rename(
    model: Network,
    names: Mapping[str, str] | Callable[[str], str] | None = None,
    *,
    prefix: str = "",
    state: Mapping[str, Any],
) -> tuple[Model, dict[str, Any]]: ...


@hides_internal_frames
def rename(
    model: Network,
    names: Mapping[str, str] | Callable[[str], str] | None = None,
    *,
    prefix: str = "",
    state: Mapping[str, Any] | None = None,
) -> Any:
    """Returns the model with other layer names, so that two models can be merged.

    Layers inside nested networks keep their names, which are unique already.

    Args:
        model: a model, or a Sequential with a graph.
        names: new names by old name, or a function from old to new names.
        prefix: a prefix for every name, new or old.
        state: the state of the model, whose keys are names of layers; the result is then
            `(model, state)`.

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
    tensors = network_inputs(model, renamed)
    result = plain_model(model, record_graph(model.graph, renamed, tensors, "fk.rename"), tensors)
    if state is not None:
        return result, {renamed[name].name: value for name, value in state.items()}
    return returned(result, "fk.rename", "model = fk.rename(model, names)", depth=2)


@overload
def inline(model: Network, name: str) -> Model: ...


@overload
def inline(model: Network, name: str, state: Mapping[str, Any]) -> tuple[Model, dict[str, Any]]: ...


@hides_internal_frames
def inline(model: Network, name: str, state: Mapping[str, Any] | None = None) -> Any:
    """Returns the model with the calls of the nested network `name` in the graph of the model.

    The layers of the network get names such as "name_dense", and their state moves to the model's
    level. Values stay the same, except that layers draw other random numbers.

    Args:
        model: a model with a graph.
        name: the name of a network among the layers of the model.
        state: the state of the model; the result is then `(model, state)`.

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

    def open_call(site: Site) -> Tree:
        return _open_call(site, nested, inner)

    layers = dict(model.layers.items())
    tensors = network_inputs(model, layers)
    outputs = record_graph(model.graph, layers, tensors, "fk.inline", operations={name: open_call})
    result = plain_model(model, outputs, tensors)
    if state is not None:
        opened = {f"{name}_{key}": value for key, value in state.get(name, {}).items()}
        return result, {**{key: value for key, value in state.items() if key != name}, **opened}
    return returned(result, "fk.inline", "model = fk.inline(model, name)", depth=2)


@hides_internal_frames
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
    if isinstance(model, Network) and makes_strings(model):
        raise FKerasError(
            f"{model._where}: returns strings, which are computed on the host after the device part. "
            "Leave the strings out: fk.Model(model.inputs, model.tensor(name_of_a_layer)).",
            layer=model._where,
        )
    if not isinstance(model, Network) or not reads_strings(model):
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


def _open_call(site: Site, network: Network, layers: dict[str, Layer]) -> Tree:
    """Records the calls of a nested network in the place of its call."""
    if site.options:
        raise FKerasError(
            f"{network._where}: is called with {', '.join(site.options)}, which its layers would "
            "not receive. Keep the network nested.",
            layer=network._where,
        )
    graph = network.graph
    tensors = match_inputs(network, site.args)
    for slot, tensor in zip(graph.input_slots, tensors, strict=True):
        # the opened calls would receive the tensor without the network's cast
        if tensor is not None and tensor.dtype != graph.specs[slot].dtype:
            raise FKerasError(
                f"{network._where}: expects {graph.specs[slot].dtype} and casts its input of "
                f"{tensor.dtype}. Keep the network nested, or cast before the network.",
                layer=network._where,
            )
    return record_graph(graph, layers, tuple(tensors), site.where, training=site.training)
