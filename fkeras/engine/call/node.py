"""Nodes and symbolic tensors, and `record`, which makes them: the open graph, before `fk.Model` closes it.

A tensor refers to the node that made it, and a node to its input tensors. These immutable records are
the whole graph, so Python frees a graph when the last reference to its tensors is gone.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
from jax.core import Tracer

from fkeras.engine.call.inference import infer
from fkeras.engine.call.mask_rules import STRICT
from fkeras.engine.call.signature import Effects, RecordedCall, Signature, SignatureFields
from fkeras.engine.messages.errors import FKerasError, SymbolicValueError
from fkeras.engine.migration_hints.attributes import MissingAttributeError
from fkeras.engine.values import structure
from fkeras.engine.values.annotations import Layer, Leaf, Option, Template, Tree
from fkeras.engine.values.argument_types import ArrayLike, Nested
from fkeras.engine.values.frozen import constant_of, freeze_value, is_array
from fkeras.engine.values.private_jax import asked_by_an_operator
from fkeras.engine.values.spec import Spec
from fkeras.engine.values.structure import Ref

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep


class Node(SignatureFields):
    """One recorded call: the layer, the input tensors and the call's signature.

    Nodes compare by identity: two calls are two nodes.

    Attributes:
        layer: the layer object that was called; its identity is the layer's identity in the graph.
        signature: arguments, mode and outputs; their fields are attributes of the node too.
        inputs: the symbolic tensors among the arguments.
        resolved: the layer with everything settled that depends on the shapes of its inputs.
        location: file and line of the user's call, "file:line", for messages.
        origin: for an input of a model's own tensors, the node of the `fk.Input` from which the model
            was made; else None.

    Example:
        >>> import fkeras as fk
        >>> y = fk.layers.Dense(2)(fk.Input((3,)))
        >>> y.node.layer, y.node.outputs[0].shape
        (Dense(2), (None, 2))
    """

    __slots__ = ("__weakref__", "inputs", "layer", "location", "origin", "resolved", "signature")

    def __init__(
        self,
        layer: Layer,
        signature: Signature,
        inputs: tuple = (),
        resolved: Layer | None = None,
        location: str = "",
        origin: Node | None = None,
    ):
        set_field = object.__setattr__
        set_field(self, "layer", layer)
        set_field(self, "signature", signature)
        set_field(self, "inputs", inputs)
        set_field(self, "resolved", layer if resolved is None else resolved)
        set_field(self, "location", location)
        set_field(self, "origin", origin)

    @property
    def args(self) -> Template:
        """Frozen tree of the positional arguments, `Ref(i)` for `inputs[i]`; None for an input."""
        return self.signature.args

    @property
    def options(self) -> Template:
        """Frozen dictionary of the arguments by name, `Ref(i)` for `inputs[i]`."""
        return self.signature.options

    @property
    def effects(self) -> Effects:
        """Losses, penalties, metrics and updates of a training call, inferred at every access."""
        if self.args is None:
            return Effects()
        specs = tuple(tensor.spec for tensor in self.inputs)
        masks = tuple(tensor.node.signature.masks[tensor.index] for tensor in self.inputs)
        return infer(self.resolved, self.signature.recorded, specs, masks)[1]

    @property
    def losses(self) -> int:
        """Number of losses that the call adds."""
        return self.effects.losses

    @property
    def penalties(self) -> int:
        """Number of regularization losses of the layer's weights."""
        return self.effects.penalties

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics that the call reports."""
        return self.effects.metrics

    @property
    def updates(self) -> bool:
        """Whether the call changes the layer's state in training."""
        return self.effects.updates

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("A Node cannot change. Call the layer again: that makes a new one.")

    def __repr__(self) -> str:
        return f"<Node {type(self.layer).__name__} {', '.join(map(str, self.outputs))}>"


class SymbolicTensor:
    """A value that a graph will compute: output number `index` of a node.

    `fkeras.engine.KerasTensor` adds the operators, which need layers and are defined above them.
    """

    __slots__ = ("__weakref__", "index", "node")

    def __init__(self, node: Node, index: int):
        object.__setattr__(self, "node", node)
        object.__setattr__(self, "index", index)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(
            f"A symbolic tensor cannot change, so {name!r} cannot be set. Record another call."
        )

    @property
    def spec(self) -> Spec:
        """Shape and dtype; unknown axes have names."""
        return self.node.signature.outputs[self.index]

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The sizes; None for unknown sizes."""
        return self.spec.shape

    @property
    def ndim(self) -> int:
        return self.spec.ndim

    @property
    def dtype(self) -> str:
        return self.spec.dtype

    @property
    def name(self) -> str:
        """The name of the layer that made the tensor, or the class of an unnamed layer."""
        return self.node.layer.name or type(self.node.layer).__name__

    def __repr__(self) -> str:
        return f"<KerasTensor {self.spec} {self.dtype} from {self.name}>"

    if not TYPE_CHECKING:  # a type checker would accept the attributes and conversions
        # that these methods reject

        def __getattr__(self, name: str) -> Any:
            raise MissingAttributeError(self, name)

        def __setitem__(self, index: object, value: object) -> None:
            raise TypeError(
                f"{self!r}: a symbolic tensor cannot change, so x[...] = value is not possible. Write "
                "`x = fk.ops.slice_update(x, (0, 0), update)`, which returns a tensor with another "
                "block, or `x = fk.ops.where(condition, value, x)`."
            )

        def __len__(self) -> int:
            raise self._numbers_error("len(x)", "x.shape[0], which is None for an unknown size")

        def __bool__(self) -> bool:
            raise self._numbers_error("an if or a comparison", "fk.ops.where(condition, x, y)")

        def __float__(self) -> float:
            raise self._numbers_error("float(x)", "model(array) to compute numbers")

        def __int__(self) -> int:
            raise self._numbers_error("int(x)", "model(array) to compute numbers")

        def __array__(self, *args: Tree, **kwargs: Option) -> Any:
            raise self._numbers_error(
                "a NumPy function", "fk.ops.name(x), or fk.ops.lift(function)(x)"
            )

        @property
        def __jax_array__(self) -> Any:
            # `array + tensor` must find no such attribute, so that Python calls the tensor's operator;
            # functions such as `jnp.sin` get an error that names the remedy
            if asked_by_an_operator():
                raise AttributeError("__jax_array__")
            raise self._numbers_error(
                "a JAX function",
                "fk.ops.name(x) if fk.ops has the function, otherwise fk.ops.lift(jnp.name)(x); instead "
                "of keras.layers and keras.ops use fk.layers and fk.ops",
            )

    def _numbers_error(self, operation: str, remedy: str) -> SymbolicValueError:
        return SymbolicValueError(
            f"{operation}: expected numbers, received the symbolic tensor {self!r}, which holds no "
            f"numbers while a graph is recorded. Write {remedy}."
        )


#: symbolic tensors in lists, tuples and dictionaries
SymbolicTree: TypeAlias = "SymbolicTensor | Sequence[SymbolicTree] | Mapping[str, SymbolicTree]"
#: arguments of operations: a number, an array, a symbolic tensor, or these in nested lists
TensorLike: TypeAlias = Nested[ArrayLike | SymbolicTensor]


def is_symbolic(value: object) -> bool:
    """Whether `value` is a symbolic tensor; False for arrays, tracers and all other values.

    Example:
        >>> import fkeras as fk
        >>> is_symbolic(fk.Input((2,))), is_symbolic(1.0)
        (True, False)
    """
    return isinstance(value, SymbolicTensor)


def symbolic_arguments(inputs: tuple, options: Mapping[str, Any], mask: Tree) -> bool:
    """Whether the arguments of a call contain a symbolic tensor."""
    leaves = jax.tree.leaves((inputs, dict(options), mask))
    return any(isinstance(leaf, SymbolicTensor) for leaf in leaves)


def record(
    layer: Layer,
    args: tuple,
    options: dict,
    training: bool | None = None,
    mask_rule: str = STRICT,
    kind: type | None = None,
) -> Tree:
    """Records one call of `layer` and returns its symbolic outputs; no existing value changes.

    Args:
        training: True or False where the call pins it.
        mask_rule: how masks reach the call; see `mask_rules`.
        kind: class of the outputs, required for a call on constants; the inputs' class by default.
    """
    tensors: list[Any] = []

    def place(value: object) -> Leaf:
        if isinstance(value, SymbolicTensor):
            tensors.append(value)
            return Ref(len(tensors) - 1)
        if isinstance(value, Tracer):
            raise FKerasError(
                f"{layer._where}: expected symbolic tensors and constants, received a traced array. "
                "A graph holds no traced values: make the array an fk.Input of the graph.",
                layer=layer._where,
            )
        return constant_of(value) if is_array(value) else freeze_value(value)

    # arguments before options: both share one numbering of the tensors
    template = structure.freeze(args, place)
    frozen_options = structure.freeze(options, place)
    specs = tuple(t.spec for t in tensors)
    masks = tuple(t.node.signature.masks[t.index] for t in tensors)
    recorded = RecordedCall(template, frozen_options, training, mask_rule)
    resolved = layer._resolve(*structure.fill_specs(template, specs))
    signature, _ = infer(resolved, recorded, specs, masks)
    node = Node(layer, signature, tuple(tensors), resolved, _user_line())
    # `KerasTensor` is defined above this package, so the inputs tell the class of the outputs
    kind = type(tensors[0]) if kind is None else kind
    return structure.fill(signature.value, [kind(node, i) for i in range(len(signature.outputs))])


def _user_line() -> str:
    """File and line, "file:line", of the innermost caller outside this package."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
