"""Building: the checks around an author's `build`, `init_state` and `init_cache`, and builds of shapes alone."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import jax

from fkeras.engine.call import caches
from fkeras.engine.call.input_spec import check_inputs
from fkeras.engine.messages.errors import FKerasError
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.engine.migration_hints.dropped import returned
from fkeras.engine.tree.walk import is_layer
from fkeras.engine.values.annotations import Layer, Leaf, Option, Tree
from fkeras.engine.values.cache_size import CacheSize
from fkeras.engine.values.random import ShapeKey, check_key
from fkeras.engine.values.spec import as_specs, canonical_dtype


def takes_specs(hook: Any, kind: str) -> Any:
    """Wraps a method of an author to accept specs, arrays and shapes, and to check key and sizes.

    Args:
        kind: "build", "init_state" or "init_cache". An author's `init_cache(self, size, *specs)` makes
            entries; callers write `init_cache(batch, length, *specs, slack=0)` and get the whole state.
    """
    if kind == "init_state":

        @hides_internal_frames
        @functools.wraps(hook)
        def init_state(self: Layer, *specs: Tree, slack: int = 0) -> dict[str, Any]:
            state = caches.from_former_call(self, specs, slack)
            if state is not None:
                return state
            inputs = tuple(None if s is None else as_specs(s) for s in specs)
            try:
                return hook(self, *inputs)
            except TypeError as error:
                _explain_missing_shapes(self, "init_state((None, 8))", inputs, error)
                raise

        return init_state

    if kind == "init_cache":

        def init_cache(
            self: Layer, batch: int, length: int, *specs: Tree, slack: int = 0
        ) -> dict[str, Any]:
            return caches.from_numbers(self, (batch, length, *specs), slack)

        init_cache.__qualname__ = hook.__qualname__

        @hides_internal_frames
        @functools.wraps(hook)
        def entries_or_state(self: Layer, *arguments: Tree, **options: Option) -> dict[str, Any]:
            if arguments and isinstance(arguments[0], CacheSize):
                return hook(self, *arguments)
            return init_cache(self, *arguments, **options)

        entries_or_state.__wrapped__ = init_cache  # the signature that readers see
        return entries_or_state

    @hides_internal_frames
    @functools.wraps(hook)
    def build(self: Layer, key: jax.Array, *specs: Tree) -> Layer:
        check_key(key, f"{self._where}: build")
        inputs = tuple(None if s is None else as_specs(s) for s in specs)
        if inputs:  # before weights depend on the inputs
            # the `input_spec` of a built layer depends on its weights, which `build` replaces
            check_inputs(self._unbuilt() if self.built else self, inputs)
        try:
            layer = hook(self, key, *inputs)
        except TypeError as error:
            _explain_missing_shapes(self, "build(jax.random.key(0), (None, 8))", inputs, error)
            raise
        if not is_layer(layer):
            raise TypeError(
                f"{self._where}: build returned {type(layer).__name__}. Return a copy that holds the "
                "weights: `return self.with_weights(key, kernel=shape)`."
            )
        # a layer that needs no weights for its configuration counts as built too
        layer = layer if layer.built else layer.replace(_built=True)
        return returned(layer, "Layer.build", "layer = layer.build(key, shape)", depth=2)

    return build


def _explain_missing_shapes(layer: Layer, call: str, specs: tuple, error: TypeError) -> None:
    """Raises if `build` or `init_state` failed because the call has no specs."""
    # other errors are the author's
    if not specs and "positional argument" in str(error):
        raise FKerasError(
            f"{layer._where}: {call.partition('(')[0]} needs the shape of every input, received no "
            f"shape. Write `layer.{call}`: a shape, spec or array for each input.",
            layer=layer._where,
        ) from None


def build_shapes(layer: Layer, *specs: Tree, state: bool = False) -> tuple[Any, dict[str, Any]]:
    """Returns `(layer, state)` from `build` and `init_state`, with shapes instead of arrays.

    Args:
        layer: a layer or network.
        state: whether to make the state; the state is `{}` otherwise.
    """
    # a side effect of the trace, since a traced function cannot return ShapeDtypeStructs
    shapes: list[Any] = []

    def build(layer: Layer, key: Any) -> None:
        built = layer.build(key, *specs)
        state_arrays = built.init_state(*specs) if state else {}
        shapes[:] = [jax.tree.map(_struct, (built, state_arrays))]

    # under a trace, so that other computations in `build` cost nothing either
    with contextlib.suppress(Exception):
        jax.eval_shape(lambda: build(layer, ShapeKey()))
    if not shapes:  # a user's layer may compute with the key, or with weights of children
        jax.eval_shape(build, layer, jax.eval_shape(lambda: jax.random.key(0)))
    return shapes[0]


def _struct(array: Leaf) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape, jax.numpy.dtype(canonical_dtype(array.dtype)))
