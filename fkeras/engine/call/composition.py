"""Calls on constants while an `fk.Model` subclass composes its layers.

`Embedding(n, d)(ops.arange(n))` inside `call` has no symbolic input, yet the weights of the embedding
must belong to the model. The call is therefore recorded with the array as a constant. `tensor_class`
finds out from the Python stack whether a call happens during a composition: the stack is the only
trace of a pure `call` method, and a flag would be mutable state shared by threads. The search takes
about 0.1 microseconds of each call on arrays for every frame of the caller's stack.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FrameType
from typing import Any

import jax
from jax.core import Tracer

from fkeras.engine.call.inference import infer
from fkeras.engine.call.node import is_symbolic
from fkeras.engine.call.strings import has_strings
from fkeras.engine.tree.skeleton import leaves_of, skeleton_of
from fkeras.engine.values.annotations import Layer, Tree
from fkeras.engine.values.frozen import is_array


def compose(call: Callable[..., Any], inputs: tuple) -> Tree:
    """Calls the `call` method of a model on symbolic inputs; records calls on constants inside."""
    return call(*inputs)


def tensor_class(layer: Layer, inputs: tuple, options: dict[str, Any]) -> type | None:
    """The class of the symbolic tensors that a call on constants returns; None if the call computes.

    During a composition, calls of layers with weights, state, random numbers or training behaviour
    are recorded. Other layers compute their value, which becomes a constant of the graph.

    Args:
        inputs: positional arguments, without symbolic tensors.
    """
    # the stack first: outside of compositions, the other tests would cost a model's call more
    symbolic_inputs = _composed_inputs()
    if symbolic_inputs is None or _is_constant_function(layer):
        return None
    leaves = jax.tree.leaves((inputs, options))
    if any(isinstance(leaf, Tracer) for leaf in leaves):
        return None
    if not leaves or not all(map(is_array, jax.tree.leaves(inputs))):
        return None
    return next(
        (type(leaf) for leaf in jax.tree.leaves(symbolic_inputs) if is_symbolic(leaf)), None
    )


def _is_constant_function(layer: Layer) -> bool:
    """Whether a call on constants is a constant: the layer has no weights, state or randomness."""
    if has_strings(layer):
        return True
    # `built` comes last: a network asks all of its layers
    if leaves_of(layer) or skeleton_of(layer).children or not layer.built:
        return False
    # a layer that draws random numbers or behaves differently in training implements `forward`
    return type(layer).forward.__qualname__ == "Layer.forward"


def _composed_inputs() -> tuple | None:
    """The inputs of the innermost composition on the stack; None during an inference inside it."""
    frame: FrameType | None = inspect.currentframe()
    composing, inferring = compose.__code__, infer.__code__
    while frame is not None:
        if frame.f_code is composing:
            return frame.f_locals["inputs"]
        if frame.f_code is inferring:
            return None
        frame = frame.f_back
    return None
