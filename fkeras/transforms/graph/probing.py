"""Probes: values inside a model, beside its outputs or as metrics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from fkeras.engine.call.context import Context, Output
from fkeras.engine.layer.layer import Layer
from fkeras.engine.messages.errors import FKerasError
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.engine.migration_hints.dropped import returned
from fkeras.engine.models.model import Model
from fkeras.engine.network.network import Network
from fkeras.engine.tree.sublayers import sublayers
from fkeras.engine.tree.walk import join_path
from fkeras.engine.values import structure
from fkeras.engine.values.annotations import Tree
from fkeras.engine.values.values_by_call import ValuesByCall
from fkeras.transforms.graph.rebuilding import (
    Operation,
    Site,
    network_inputs,
    plain_model,
    rebuild,
    record_graph,
)
from fkeras.transforms.graph.selecting import Place, Selected, select_all
from fkeras.transforms.graph.surgery import behind, check_model


class Reduced(Layer):
    """Computes a function of a value, for a probe.

    Args:
        function: `(array) -> tree of arrays`.
    """

    function: Callable[[Any], Any]
    supports_masking: ClassVar[bool] = True
    _autocast: ClassVar[bool] = False

    def forward(self, context: Context, x: Tree) -> Output:
        return Output(self.function(x))


class Reported(Layer):
    """Returns its input, and reports a function of the input as a metric.

    Args:
        function: `(array) -> number`.
        metric: the name of the metric.
    """

    function: Callable[[Any], Any]
    metric: str
    supports_masking: ClassVar[bool] = True
    _autocast: ClassVar[bool] = False

    def forward(self, context: Context, x: Tree) -> Output:
        number = jnp.asarray(self.function(x))
        if number.shape != ():
            raise FKerasError(
                f"transforms.probe: expected one number from `reduce` for the metric {self.metric!r}, "
                f"received an array of the shape {number.shape}. Reduce the value, for example with "
                "`lambda x: jnp.abs(x).mean()`.",
                layer=self.name,
            )
        return Output(x, mask=context.mask, metrics={self.metric: number})


@hides_internal_frames
def probe(
    model: Network,
    places: Place | Sequence[Place],
    *,
    reduce: Callable[[jax.Array], Any] | None = None,
    report: bool = False,
) -> Any:
    """Returns a model that also returns values inside: `(outputs, {"name_ib-0": value})`.

    The key of a value is the layer, `_ib-` and the number of the call. In a nested network, the keys
    of the calls are joined: "encoder_ib-0/block3_ib-0". The name of a layer also finds its value where
    one value has this name: `values["name"]`, `values["encoder/block3"]`. `dict(values)` is a plain
    dictionary, which `jax.tree.map` takes together with other dictionaries. Weights, names and random
    numbers stay. The compiled program computes no value that its caller drops.

    Args:
        model: a model with a graph.
        places: a selector as for `transforms.replace`, or a list of selectors. `("dense", 1)` is one
            call of a shared layer, `("lstm", 0, 1)` one output, whose key ends in ":1".
        reduce: a function of each value, such as a norm or `lambda x: jnp.histogram(x, 20)[0]`; its
            results take the places of the values.
        report: True leaves the outputs as they are and reports the numbers of `reduce` as metrics of
            the model, which `fit` averages, records and passes to callbacks such as TensorBoard.

    Raises:
        ValueError: if a selector matches no layer, and for `report` without `reduce`, or with a
            `reduce` that returns more than a number.
        FKerasError: for a layer that no graph calls.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> from fkeras import transforms
        >>> body, head = fk.layers.Dense(3, "relu", name="body"), fk.layers.Dense(2, name="head")
        >>> model = fk.Sequential([fk.Input((4,)), body, head]).build(jax.random.key(0))
        >>> outputs, values = transforms.probe(model, "body")(jnp.ones((1, 4)))
        >>> outputs.shape, {key: value.shape for key, value in values.items()}
        ((1, 2), {'body_ib-0': (1, 3)})
        >>> values["body"] is values["body_ib-0"]
        True
        >>> norms = transforms.probe(model, "*", reduce=jnp.linalg.norm)
        >>> list(norms(jnp.ones((1, 4)))[1])
        ['body_ib-0', 'head_ib-0']
    """
    where = "transforms.probe"
    check_model(model, where)
    if not isinstance(model, Network):
        raise TypeError(f"{where}: expected a model with a graph, received {model._where}.")
    selected: dict[str, list[Selected]] = {}
    for one in select_all(model, places, where):
        selected.setdefault(one.path, []).append(one)
    if report:
        if reduce is None:
            raise ValueError(
                f"{where}: expected `reduce` with report=True, since a metric is one number. For example "
                "reduce=lambda x: jnp.abs(x).mean()."
            )
        new: Any = _reporting(model, selected, reduce)
    else:
        new = _probing(model, "", selected, reduce)
    return returned(new, where, "probed = transforms.probe(model, places)", depth=2)


def _probing(
    network: Network, path: str, selected: dict[str, list[Selected]], reduce: Callable | None
) -> Model:
    """Returns the network with outputs `(outputs, values)`."""
    where = "transforms.probe"
    layers, operations = dict(network.layers.items()), dict[str, Operation]()
    values = ValuesByCall()
    opened: set[str] = set()

    def read(site: Site) -> Tree:
        value = site.keep()
        if site.path in opened:
            value, inner = value
            values.update(
                {f"{site.path}_ib-{site.node}/{key}": found for key, found in inner.items()}
            )
        _, outputs = structure.number(value)
        for one in selected.get(join_path(path, site.path), ()):
            if one.node not in (None, site.node):
                continue
            key, found = f"{site.path}_ib-{site.node}", value
            if one.tensor is not None:
                key, found = f"{key}:{one.tensor}", _output(outputs, one, site)
            if reduce is not None:
                found = _reduced(found, reduce)
            values[key] = found
        return value

    for name, layer in network.layers.items():
        at = join_path(path, name)
        if any(chosen.startswith(f"{at}/") for chosen in selected):
            if not isinstance(layer, Network) or layer.graph is None:
                raise FKerasError(
                    f"{where}: expected a layer that a graph calls, received a layer inside {at!r}, which "
                    f"calls the layer itself. Probe {at!r}.",
                    layer=at,
                )
            layers[name] = _probing(layer, at, selected, reduce)
            opened.add(name)
        if at in selected or name in opened:
            operations[name] = read
    inputs = network_inputs(network, layers)
    outputs = record_graph(network.graph, layers, inputs, where, operations=operations)
    return plain_model(network, (outputs, values), inputs)


def _output(outputs: list[Any], one: Selected, site: Site) -> Any:
    assert one.tensor is not None
    if not 0 <= one.tensor < len(outputs):
        raise ValueError(
            f"{site.where}: {site.path!r} has {len(outputs)} outputs, asked for output {one.tensor}. "
            f"Give an index from 0 to {len(outputs) - 1}."
        )
    return outputs[one.tensor]


def _reduced(value: Tree, reduce: Callable) -> Tree:
    template, tensors = structure.number(value)
    return structure.fill(template, [Reduced(reduce)(tensor) for tensor in tensors])


def _reporting(model: Network, selected: dict[str, list[Selected]], reduce: Callable) -> Network:
    """Returns the model with metrics of values inside."""
    for path, network in sublayers(model):
        names = network.layers if isinstance(network, Network) else ()
        for name in names:
            count, inside = len(network.graph.calls_of[name]), join_path(path, name)
            if count > 1 and any(chosen.startswith(f"{inside}/") for chosen in selected):
                raise ValueError(
                    f"transforms.probe: {inside!r} is called {count} times, so its layers would report "
                    f"each metric {count} times. Open the network first, model = fk.inline(model, "
                    f"{name!r}), and select {name}_<layer>; or probe without report=True."
                )

    def operation(site: Site) -> Tree:
        value = site.keep()
        for one in selected[site.path]:
            if one.node in (None, site.node):
                tensor = "" if one.tensor is None else f":{one.tensor}"
                # never a plain name, which may be that of another log
                metric = f"{site.path}_ib-{site.node}{tensor}"
                layer = site.unique(Reported(reduce, metric, name=f"{site.call.layer}_probe"))
                value = behind(site, value, layer, one)
        return value

    return rebuild(model, dict.fromkeys(selected, operation), "transforms.probe")
