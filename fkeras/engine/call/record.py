"""Recording: a call on symbolic tensors becomes a Node.

`inference` computes the specs of the outputs.
"""

from __future__ import annotations

import inspect
import os
from typing import Any

from jax.core import Tracer

from fkeras.engine.call.inference import infer
from fkeras.engine.call.mask_rules import STRICT
from fkeras.engine.call.node import Node, is_symbolic
from fkeras.engine.messages.errors import FKerasError
from fkeras.engine.values import structure
from fkeras.engine.values.frozen import ArrayConstant, freeze_value, is_array
from fkeras.engine.values.structure import Ref

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep


def record(
    layer: Any,
    args: tuple,
    options: dict,
    training: bool | None = None,
    mask_rule: str = STRICT,
    kind: type | None = None,
) -> Any:
    """Records one call of `layer` and returns its symbolic outputs; no existing value changes.

    Args:
        layer: the layer.
        args: the positional arguments, symbolic tensors and arrays in any nesting.
        options: the arguments by name.
        training: True or False where the call pins it.
        mask_rule: how masks reach the call; see `mask_rules`.
        kind: class of the outputs, required for a call on constants; the inputs' class by default.
    """
    tensors: list[Any] = []

    def place(value: Any) -> Any:
        if is_symbolic(value):
            tensors.append(value)
            return Ref(len(tensors) - 1)
        if isinstance(value, Tracer):
            raise FKerasError(
                f"{layer.where}: expected symbolic tensors and constants, received a traced array. "
                "A graph holds no traced values: make the array an fk.Input of the graph.",
                layer=layer.where,
            )
        return ArrayConstant(value) if is_array(value) else freeze_value(value)

    # arguments before options: both share one numbering of the tensors
    template = structure.freeze(args, place)
    frozen_options = structure.freeze(options, place)
    specs = tuple(t.spec for t in tensors)
    masks = tuple(t.node.masks[t.index] for t in tensors)
    resolved = layer.resolve(*structure.fill(template, specs))
    signature, _ = infer(resolved, template, frozen_options, specs, masks, training, mask_rule)
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
