"""The engine: layers as values, recording, closed graphs, networks. It knows no layer."""

from typing import Any as _Any

from fkeras.engine.call.context import Context as Context
from fkeras.engine.call.context import Output as Output
from fkeras.engine.call.input_spec import InputSpec as InputSpec
from fkeras.engine.call.node import Node as Node
from fkeras.engine.call.node import is_symbolic as is_symbolic
from fkeras.engine.config.configurable import Configurable as Configurable
from fkeras.engine.config.configurable import deserialize as deserialize
from fkeras.engine.config.configurable import lookup as lookup
from fkeras.engine.config.configurable import option as option
from fkeras.engine.config.configurable import serialize as serialize
from fkeras.engine.config.keras_form import KerasForm as KerasForm
from fkeras.engine.config.late_module import late_module as _late_module
from fkeras.engine.config.policy import DTypePolicy as DTypePolicy
from fkeras.engine.config.public_names import publish as _publish
from fkeras.engine.graph.call_table import Call as Call
from fkeras.engine.graph.call_table import Coord as Coord
from fkeras.engine.graph.close import close as close
from fkeras.engine.graph.graph import Graph as Graph
from fkeras.engine.graph.views import GraphTensor as GraphTensor
from fkeras.engine.graph.views import LayerView as LayerView
from fkeras.engine.layer.layer import Layer as Layer
from fkeras.engine.messages.errors import DisconnectedGraphError as DisconnectedGraphError
from fkeras.engine.messages.errors import FKerasError as FKerasError
from fkeras.engine.messages.errors import InputSpecError as InputSpecError
from fkeras.engine.messages.errors import SymbolicValueError as SymbolicValueError
from fkeras.engine.messages.errors import suggest as suggest
from fkeras.engine.models.model import Model as Model
from fkeras.engine.models.partition import combine as combine
from fkeras.engine.models.partition import overwritten_weights as overwritten_weights
from fkeras.engine.models.partition import partition as partition
from fkeras.engine.models.partition import replace_weights as replace_weights
from fkeras.engine.models.partition import trainable_weights as trainable_weights
from fkeras.engine.models.partition import unbuilt as unbuilt
from fkeras.engine.models.sequential import Sequential as Sequential
from fkeras.engine.network.draw import to_dot as to_dot
from fkeras.engine.network.draw import to_mermaid as to_mermaid
from fkeras.engine.network.network import Network as Network
from fkeras.engine.symbolic.input import Input as Input
from fkeras.engine.symbolic.input import InputLayer as InputLayer
from fkeras.engine.symbolic.operation import Op as Op
from fkeras.engine.symbolic.operation import Operation as Operation
from fkeras.engine.symbolic.operation import lift as lift
from fkeras.engine.symbolic.operators import KerasTensor as KerasTensor
from fkeras.engine.tree.axes import AxisNames as AxisNames
from fkeras.engine.tree.sublayers import sublayers as sublayers
from fkeras.engine.tree.weights import constrain as constrain
from fkeras.engine.tree.weights import subkey as subkey
from fkeras.engine.tree.weights import weight as weight
from fkeras.engine.values.frozen import ArrayConstant as ArrayConstant
from fkeras.engine.values.frozen import FrozenDict as FrozenDict
from fkeras.engine.values.naming import snake_case as snake_case
from fkeras.engine.values.spec import Spec as Spec
from fkeras.engine.values.spec import as_spec as as_spec
from fkeras.engine.values.spec import as_specs as as_specs
from fkeras.nn.numerics.axes import align as align


def __getattr__(name: str) -> _Any:
    # `fkeras.transforms` imports the engine; these names were the engine's before
    if name in ("freeze", "inline", "rename", "replace_layers", "split_host", "unfreeze"):
        return getattr(_late_module("transforms"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_publish(__name__)
