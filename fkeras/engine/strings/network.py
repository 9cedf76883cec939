"""`StringNetwork`: a network whose graph may begin and end with layers of strings.

This file decides where strings are: layers of strings before the network of numbers, the device's
network of numbers, and layers of strings after the network of numbers. Other files use `device_part`,
`host_values` and `decoded_values`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, overload

from fkeras.engine.call.context import Output
from fkeras.engine.call.network_inputs import match_inputs
from fkeras.engine.call.strings import HandlesStrings, has_strings
from fkeras.engine.graph.close import close
from fkeras.engine.layer.layer import Layer
from fkeras.engine.network.network import Network
from fkeras.engine.strings.cut import on_host, split, split_after
from fkeras.engine.strings.host import read_inputs, run_on_host
from fkeras.engine.values.annotations import Tree
from fkeras.engine.values.spec import STRING


class StringNetwork(HandlesStrings, Network):
    """Runs a graph: calls that take or return strings on the host, all other calls on the device."""

    @property
    def _reads_strings(self) -> bool:  # type: ignore[override]
        return self.graph is not None and STRING in self.graph.input_dtypes

    @property
    def _makes_strings(self) -> bool:  # type: ignore[override]
        return self.graph is not None and STRING in self.graph.computed_dtypes

    def _apply_to_arrays(
        self, inputs: tuple, mode: dict[str, Any], mask: Tree, options: Mapping[str, Any]
    ) -> Output:
        if self._makes_strings:
            out = self._halves(split_after)[0].apply(*inputs, mask=mask, **mode, **options)
            return dataclasses.replace(out, value=decoded_values(self, out.value), mask=None)
        if not self._reads_strings:
            return super()._apply_to_arrays(inputs, mode, mask, options)
        arrays = read_inputs(self, inputs, mask, options)
        if on_host(self):
            return Output(run_on_host(self, arrays))
        host, device = self._halves(split)
        return device.apply(run_on_host(host, arrays), **mode)

    def _halves(self, split_network: Callable) -> tuple[Network, Network]:
        """Returns the parts for host and device, made once for each network object."""
        if "_cut" not in self.__dict__:
            self.__dict__["_cut"] = split_network(self, _network)
        return self.__dict__["_cut"]


def _network(inputs: Tree, outputs: Tree, name: str | None) -> Network:
    network = Network(name=name)
    graph, layers = close(inputs, outputs, network._where)
    if STRING in graph.input_dtypes | graph.computed_dtypes:
        network = StringNetwork(name=name)
    return network.replace(graph=graph, layers=layers)


@overload
def device_part(model: Network) -> Network: ...


@overload
def device_part(model: Layer) -> Layer: ...


def device_part(model: Layer) -> Layer:
    """Returns the part of a model that the device computes, with the paths of the model's weights.

    A layer, and a model without strings, is its own part. The part takes the numbers that `host_values`
    returns.
    """
    if not isinstance(model, StringNetwork) or not has_strings(model):
        return model
    if model._makes_strings:
        return device_part(model._halves(split_after)[0])
    return model._halves(split)[1]


def host_values(model: Layer, x: Tree) -> Tree:
    """Returns the inputs of `device_part(model)`: the values that the host computes from strings."""
    if not isinstance(model, StringNetwork) or not model._reads_strings:
        return x
    if model._makes_strings:
        return host_values(model._halves(split_after)[0], x)
    return run_on_host(model._halves(split)[0], read_inputs(model, (x,), None, {}))


def decoded_values(model: Layer, value: Tree) -> Tree:
    """Returns the outputs of a model from those of its device part: computes returned strings."""
    if not isinstance(model, StringNetwork) or not model._makes_strings:
        return value
    after = model._halves(split_after)[1]
    return run_on_host(after, match_inputs(after, (value,)))
