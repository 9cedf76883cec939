"""Layers of shapes: built without drawing, tracing or computing any weight."""

from __future__ import annotations

from typing import Any

import jax

from fkeras.engine.values.random import ShapeKey
from fkeras.engine.values.spec import canonical_dtype


def shapes_of(tree: Any) -> Any:
    """Returns the tree with each array replaced by a `jax.ShapeDtypeStruct`."""

    def struct(array: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(array.shape, jax.numpy.dtype(canonical_dtype(array.dtype)))

    return jax.tree.map(struct, tree)


def build_shapes(layer: Any, *specs: Any, state: bool = False) -> tuple[Any, dict[str, Any]]:
    """Returns `(layer, state)` from `build` and `init_state`, with shapes instead of arrays.

    Args:
        layer: a layer or network.
        specs: a spec for each input.
        state: whether to make the state; the state is `{}` otherwise.

    Example:
        >>> import fkeras as fk
        >>> build_shapes(fk.layers.Dense(2), (None, 3))[0].kernel
        ShapeDtypeStruct(shape=(3, 2), dtype=float32)
    """
    # a side effect of the trace, since a traced function cannot return ShapeDtypeStructs
    shapes: list[Any] = []

    def build(layer: Any, key: Any) -> None:
        built = layer.build(key, *specs)
        shapes[:] = [shapes_of((built, built.init_state(*specs) if state else {}))]

    try:  # under a trace, so that other computations in `build` cost nothing either
        jax.eval_shape(lambda: build(layer, ShapeKey()))
    except Exception:  # a user's layer may compute with the key, or with weights of children
        jax.eval_shape(build, layer, jax.eval_shape(lambda: jax.random.key(0)))
    return shapes[0]
