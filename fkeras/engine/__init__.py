"""The engine: layers as values, recording, closed graphs, networks. It knows no layer."""

from fkeras.engine.close import close
from fkeras.engine.config import Configurable, deserialize, lookup, option, serialize
from fkeras.engine.context import Context, Output
from fkeras.engine.draw import to_dot, to_mermaid
from fkeras.engine.errors import (
    DisconnectedGraphError,
    FKerasError,
    InputSpecError,
    SymbolicValueError,
    suggest,
)
from fkeras.engine.freezing import freeze, unfreeze
from fkeras.engine.frozen import ArrayConstant, FrozenDict
from fkeras.engine.graph import Call, Graph
from fkeras.engine.input import Input, InputLayer
from fkeras.engine.input_spec import InputSpec
from fkeras.engine.layer import Layer
from fkeras.engine.model import Model
from fkeras.engine.naming import snake_case
from fkeras.engine.network import Network
from fkeras.engine.node import Node, is_symbolic
from fkeras.engine.operation import Op, Operation, lift
from fkeras.engine.operators import KerasTensor
from fkeras.engine.partition import (
    combine,
    overwritten_weights,
    partition,
    replace_weights,
    trainable_weights,
)
from fkeras.engine.policy import DTypePolicy
from fkeras.engine.replacing import replace_layers
from fkeras.engine.rewrite import inline, rename, split_host
from fkeras.engine.sequential import Sequential
from fkeras.engine.spec import Spec, as_spec, as_specs
from fkeras.engine.views import Coord, GraphTensor, LayerView
from fkeras.engine.weights import align, constrain, subkey, sublayers, weight

__all__ = (
    "ArrayConstant",
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
    "freeze",
    "inline",
    "is_symbolic",
    "lift",
    "lookup",
    "option",
    "overwritten_weights",
    "partition",
    "replace_layers",
    "rename",
    "replace_weights",
    "serialize",
    "snake_case",
    "split_host",
    "subkey",
    "sublayers",
    "suggest",
    "to_dot",
    "to_mermaid",
    "trainable_weights",
    "unfreeze",
    "weight",
)
