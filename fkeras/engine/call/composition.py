"""Calls on constants while an `fk.Model` subclass composes its layers.

`Embedding(n, d)(ops.arange(n))` inside `call` has no symbolic input, and the weights of the
embedding must belong to the model all the same. Such a call is recorded with the array as a
constant. Whether a call stands inside of a composition is read off the Python stack, the only place
where a pure `call` method leaves a trace.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FrameType
from typing import Any

import jax

from fkeras.engine.call.inference import infer
from fkeras.engine.call.node import is_symbolic
from fkeras.engine.tree.skeleton import leaves_of, skeleton_of
from fkeras.engine.values.frozen import is_array


def compose(call: Callable[..., Any], inputs: tuple) -> Any:
    """Calls the `call` method of a model on symbolic inputs; calls on constants inside are recorded.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> def call(x):
        ...     return x + fk.layers.Embedding(5, 2)(jnp.arange(3))
        >>> compose(call, (fk.Input((3, 2)),)).shape
        (None, 3, 2)
    """
    return call(*inputs)


def tensor_class(layer: Any, inputs: tuple, options: dict[str, Any]) -> type | None:
    """The class of symbolic tensors that a call on constants returns; None where the call computes.

    Inside of a composition, layers with weights, state, random numbers or training behaviour are
    recorded. Other layers compute their value, which becomes a constant.

    Args:
        layer: the layer.
        inputs: its positional arguments, without symbolic tensors.
        options: its options, likewise.
    """
    inside = _composed_inputs()
    if inside is None or _is_constant_function(layer):
        return None
    leaves = jax.tree.leaves((inputs, options))
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        return None
    if not leaves or not all(map(is_array, jax.tree.leaves(inputs))):
        return None
    return next((type(leaf) for leaf in jax.tree.leaves(inside) if is_symbolic(leaf)), None)


def _is_constant_function(layer: Any) -> bool:
    if layer.reads_strings or layer.makes_strings:
        return True
    if not layer.built or leaves_of(layer) or skeleton_of(layer).children:
        return False
    # a layer that draws numbers or differs in training implements `forward`
    return type(layer).forward.__qualname__ == "Layer.forward"


def _composed_inputs() -> tuple | None:
    """The inputs of the innermost composition on the stack; None while shapes are inferred."""
    frame: FrameType | None = inspect.currentframe()
    composing, inferring = compose.__code__, infer.__code__
    while frame is not None:
        if frame.f_code is composing:
            return frame.f_locals["inputs"]
        if frame.f_code is inferring:
            return None
        frame = frame.f_back
    return None
