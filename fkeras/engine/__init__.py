"""The engine: layers as values, recording, closed graphs, networks. It knows no layer."""

from typing import Any

from fkeras.engine.call.context import Context, Output
from fkeras.engine.call.input_spec import InputSpec
from fkeras.engine.call.node import Node, is_symbolic
from fkeras.engine.config.configurable import Configurable, deserialize, lookup, option, serialize
from fkeras.engine.config.late_module import late_module
from fkeras.engine.config.policy import DTypePolicy
from fkeras.engine.graph.call_table import Call, Coord
from fkeras.engine.graph.close import close
from fkeras.engine.graph.graph import Graph
from fkeras.engine.graph.views import GraphTensor, LayerView
from fkeras.engine.layer.keras_form import KerasForm
from fkeras.engine.layer.layer import Layer
from fkeras.engine.messages.errors import (
    DisconnectedGraphError,
    FKerasError,
    InputSpecError,
    SymbolicValueError,
    suggest,
)
from fkeras.engine.models.model import Model
from fkeras.engine.models.partition import (
    combine,
    overwritten_weights,
    partition,
    replace_weights,
    trainable_weights,
    unbuilt,
)
from fkeras.engine.models.sequential import Sequential
from fkeras.engine.network.draw import to_dot, to_mermaid
from fkeras.engine.network.network import Network
from fkeras.engine.symbolic.input import Input, InputLayer
from fkeras.engine.symbolic.operation import Op, Operation, lift
from fkeras.engine.symbolic.operators import KerasTensor
from fkeras.engine.tree.axes import AxisNames
from fkeras.engine.tree.sublayers import sublayers
from fkeras.engine.tree.weights import constrain, subkey, weight
from fkeras.engine.values.frozen import ArrayConstant, FrozenDict
from fkeras.engine.values.naming import snake_case
from fkeras.engine.values.spec import Spec, as_spec, as_specs
from fkeras.nn.numerics.axes import align

__all__ = (
    "ArrayConstant",
    "AxisNames",
    "Call",
    "Configurable",
    "Context",
    "Coord",
    "DTypePolicy",
    "DisconnectedGraphError",
    "FKerasError",
    "FrozenDict",
    "Graph",
    "GraphTensor",
    "Input",
    "InputLayer",
    "InputSpec",
    "InputSpecError",
    "KerasForm",
    "KerasTensor",
    "Layer",
    "LayerView",
    "Model",
    "Network",
    "Node",
    "Op",
    "Operation",
    "Output",
    "Sequential",
    "Spec",
    "SymbolicValueError",
    "align",
    "as_spec",
    "as_specs",
    "close",
    "combine",
    "constrain",
    "deserialize",
    "is_symbolic",
    "lift",
    "lookup",
    "option",
    "overwritten_weights",
    "partition",
    "replace_weights",
    "serialize",
    "snake_case",
    "subkey",
    "sublayers",
    "suggest",
    "to_dot",
    "to_mermaid",
    "trainable_weights",
    "unbuilt",
    "weight",
)


def __getattr__(name: str) -> Any:
    # `fkeras.transforms` imports the engine; these names were the engine's before
    if name in ("freeze", "inline", "rename", "replace_layers", "split_host", "unfreeze"):
        return getattr(late_module("transforms"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
