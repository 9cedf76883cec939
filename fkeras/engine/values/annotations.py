"""Names for annotations: classes of the engine ahead of their definition, and values of many types.

Most files of the engine come before the classes `Layer`, `Graph` and `Network` in the order of imports,
and take their instances as arguments. Type checkers see the classes here. At run time, where no
annotation is evaluated, the names of classes have no meaning.

The aliases of `Any` name values that no type of Python describes usefully: a recursive union would ask
for a cast at each access.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import jax
import numpy as np

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr as ClosedJaxpr
    from jax.extend.core import Jaxpr as Jaxpr
    from jax.extend.core import JaxprEqn as JaxprEqn

    from fkeras.engine.call.context import Context as Context
    from fkeras.engine.call.context import Output as Output
    from fkeras.engine.call.node import Node as Node
    from fkeras.engine.call.node import SymbolicTensor as SymbolicTensor
    from fkeras.engine.graph.call_table import Call as Call
    from fkeras.engine.graph.call_table import CallTable as CallTable
    from fkeras.engine.graph.graph import Graph as Graph
    from fkeras.engine.layer.layer import Layer as Layer
    from fkeras.engine.network.execution import Execution as Execution
    from fkeras.engine.network.network import Network as Network
    from fkeras.engine.tree.skeleton import Skeleton as Skeleton
else:
    Call = CallTable = ClosedJaxpr = Context = Execution = Graph = Jaxpr = JaxprEqn = None
    Layer = Network = Node = Output = Skeleton = SymbolicTensor = None

SomeLayer = TypeVar("SomeLayer", bound="Layer")

#: arrays, tensors or specs, alone or in nested lists, tuples and dictionaries
Tree: TypeAlias = Any
#: an element of a tree: an array, a tensor, a spec, or a static value
Leaf: TypeAlias = Any
#: a tree with numbered places for its tensors: see `fkeras.engine.values.structure`
Template: TypeAlias = Any
#: an option of a call: a tensor, an array, or a static value
Option: TypeAlias = Any
#: the value of a field, which its converter checks
Field: TypeAlias = Any
#: the type or types that a value must have
Kind: TypeAlias = type | tuple[type, ...]
#: JSON data, for example a configuration
Json: TypeAlias = Any

#: an array on the device or the host
Array: TypeAlias = jax.Array | np.ndarray
#: the mask of one array
Mask: TypeAlias = jax.Array | None
