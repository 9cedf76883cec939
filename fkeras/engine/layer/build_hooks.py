"""Wrappers of the authors' `build` and `init_state`: convert arguments to specs, check results."""

from __future__ import annotations

import functools
from typing import Any

import jax

from fkeras.engine.call.input_spec import check_inputs
from fkeras.engine.messages.errors import FKerasError
from fkeras.engine.tree.walk import is_layer
from fkeras.engine.values.random import check_key
from fkeras.engine.values.spec import Spec, as_specs


def takes_specs(hook: Any, kind: str) -> Any:
    """Wraps `build` or `init_state` to accept specs, arrays and shapes, and to check the key.

    Args:
        hook: the author's method.
        kind: the method's name.

    Example:
        >>> import jax, fkeras as fk
        >>> fk.layers.Dense(2).build(jax.random.key(0), (None, 3)).kernel.shape
        (3, 2)
    """
    if kind == "init_state":

        @functools.wraps(hook)
        def init_state(self: Any, *specs: Any) -> dict[str, Any]:
            inputs = (None if s is None else as_specs(s) for s in specs)
            return _with_specs(self, kind, functools.partial(hook, self), *inputs)

        return init_state

    @functools.wraps(hook)
    def build(self: Any, key: Any, *specs: Any) -> Any:
        check_key(key, f"{self.where}: build")
        inputs = tuple(None if s is None else as_specs(s) for s in specs)
        _check_inputs(self, inputs)
        layer = _with_specs(self, kind, functools.partial(hook, self, key), *inputs)
        if not is_layer(layer):
            raise TypeError(
                f"{self.where}: build returned {type(layer).__name__}. Return a copy that holds the "
                "weights: `return self.with_weights(key, kernel=shape)`."
            )
        # a layer that needs no weights for its configuration counts as built too
        return layer if layer.built else layer.replace(_built=True)

    return build


def _with_specs(layer: Any, kind: str, hook: Any, *specs: Any) -> Any:
    try:
        return hook(*specs)
    except TypeError as error:
        # only a call without specs is explained below; other errors are the author's
        if specs or "positional argument" not in str(error):
            raise
    example = "(jax.random.key(0), (None, 8))" if kind == "build" else "((None, 8))"
    raise FKerasError(
        f"{layer.where}: {kind} needs the shape of every input, received no shape. Write "
        f"`layer.{kind}{example}`: a shape, spec or array for each input.",
        layer=layer.where,
    )


def _check_inputs(layer: Any, specs: tuple) -> None:
    """Checks specs against the layer's `input_spec`, before weights depend on them."""
    # the spec of a built layer depends on its weights, which `build` replaces
    input_spec = layer.unbuilt().input_spec if layer.built else layer.input_spec
    if input_spec is not None and specs:
        tree = specs[0] if len(specs) == 1 else specs
        leaves = jax.tree.leaves(tree, is_leaf=lambda v: isinstance(v, Spec))
        check_inputs(input_spec, leaves, layer.where)
