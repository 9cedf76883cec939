"""What stands around the `build` and `init_state` that authors write: specs made, results checked."""

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
    """`build` or `init_state` of a layer, taking specs, arrays and shapes alike; checks the key.

    Args:
        hook: the method that the author wrote.
        kind: its name.

    Example:
        >>> import jax, fkeras as fk
        >>> fk.layers.Dense(2).build(jax.random.key(0), (None, 3)).kernel.shape
        (3, 2)
    """
    if kind == "init_state":

        @functools.wraps(hook)
        def init_state(self: Any, *specs: Any) -> dict[str, Any]:
            made_specs = (None if s is None else as_specs(s) for s in specs)
            return _with_specs(self, kind, functools.partial(hook, self), *made_specs)

        return init_state

    @functools.wraps(hook)
    def build(self: Any, key: Any, *specs: Any) -> Any:
        check_key(key, f"{self.where}: build")
        made_specs = tuple(None if s is None else as_specs(s) for s in specs)
        _check_inputs(self, made_specs)
        made = _with_specs(self, kind, functools.partial(hook, self, key), *made_specs)
        if not is_layer(made):
            raise TypeError(
                f"{self.where}: build returned {type(made).__name__}. Return a copy that holds the "
                "weights: `return self.with_weights(key, kernel=shape)`."
            )
        return made if made.built else made.replace(_built=True)

    return build


def _with_specs(layer: Any, kind: str, hook: Any, *specs: Any) -> Any:
    try:
        return hook(*specs)
    except TypeError as error:
        if specs or "positional argument" not in str(error):
            raise
    shown = "(jax.random.key(0), (None, 8))" if kind == "build" else "((None, 8))"
    raise FKerasError(
        f"{layer.where}: {kind} needs the shape of every input, and was given none. Write "
        f"`layer.{kind}{shown}`: a shape, spec or array for each input.",
        layer=layer.where,
    )


def _check_inputs(layer: Any, specs: tuple) -> None:
    """Checks specs against what the layer asks of its inputs before its weights depend on them."""
    if layer.input_spec is not None and specs:
        tree = specs[0] if len(specs) == 1 else specs
        leaves = jax.tree.leaves(tree, is_leaf=lambda v: isinstance(v, Spec))
        bare = layer.unbuilt() if layer.built else layer
        check_inputs(bare.input_spec, leaves, layer.where)
