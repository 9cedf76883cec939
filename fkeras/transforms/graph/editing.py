"""Edits: patches, steers or ablates values inside a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine.call.context import Context, Output
from fkeras.engine.layer.layer import Layer
from fkeras.engine.messages.errors import FKerasError
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.engine.migration_hints.dropped import returned
from fkeras.engine.tree.weights import weight
from fkeras.engine.values.annotations import SomeLayer, Tree
from fkeras.engine.values.frozen import is_array
from fkeras.transforms.graph.rebuilding import Site, rebuild
from fkeras.transforms.graph.selecting import Selected, select
from fkeras.transforms.graph.surgery import behind, check_changes, check_model, check_part

#: a function of the value, an array in its place, or a layer
Edit = Callable[[jax.Array], jax.Array] | jax.Array | np.ndarray | Layer


class Edited(Layer):
    """Computes a function of the value that an edit changes; the mask stays.

    Args:
        function: `(array) -> array` of the same shape.
    """

    function: Callable[[Any], Any]
    supports_masking: ClassVar[bool] = True
    _autocast: ClassVar[bool] = False

    def forward(self, context: Context, x: Tree) -> Output:
        if not _has_sizes(x):
            return Output(x, mask=context.mask)
        y = jnp.asarray(self.function(x))
        if y.shape != x.shape:
            raise FKerasError(
                f"transforms.edit, {self.name!r}: expected a value of the shape {x.shape}, received "
                f"{y.shape}. An edit keeps the shape; transforms.replace and transforms.insert may "
                "change it.",
                layer=self.name,
            )
        return Output(y.astype(x.dtype), mask=context.mask)


class Patched(Layer):
    """Returns its array, broadcast to the shape of the value that the array replaces.

    The array is a leaf of the model, so `jax.vmap` and `jax.grad` reach it.
    """

    value: jax.Array | None = weight()
    supports_masking: ClassVar[bool] = True
    _autocast: ClassVar[bool] = False

    def forward(self, context: Context, x: Tree) -> Output:
        assert self.value is not None
        if not _has_sizes(x):
            return Output(x, mask=context.mask)
        try:
            y = jnp.broadcast_to(self.value, x.shape)
        except ValueError:
            raise FKerasError(
                f"transforms.edit, {self.name!r}: expected an array that broadcasts to the value of the "
                f"shape {x.shape}, received the shape {jnp.shape(self.value)}.",
                layer=self.name,
            ) from None
        return Output(y.astype(x.dtype), mask=context.mask)


def _has_sizes(x: jax.Array) -> bool:
    """Returns whether all sizes are known, as in every run of the model.

    While the graph is recorded, the batch has no size yet, and an array or a function may be made for
    one size. An edit keeps the shape, so that nothing is left to infer.
    """
    return all(isinstance(size, int) for size in x.shape)


@hides_internal_frames
def edit(model: SomeLayer, changes: Mapping[Any, Edit]) -> SomeLayer:
    """Returns the model with values inside changed: patched, steered or ablated.

    The model computes the value, the edit changes the value, and all consumers take the result. The
    edits of one call at one place follow each other in their order. Each edit is a layer with a name
    such as "block3_edit": a probe of "block3" reads the value before, a probe of "block3_edit" the
    value behind the edit.

    Args:
        model: a model with a graph.
        changes: by selector as for `transforms.replace`, a function of the value that keeps the
            shape, an array in the place of the value, or a layer. `("dense", 1)` edits one call of a
            shared layer, `("lstm", 0, 1)` one output. A function may edit single rows:
            `lambda x: x.at[3].set(0)`.

    Raises:
        ValueError: if a selector matches no layer, for a layer with several outputs without
            coordinates, and for an edit that changes the shape.
        TypeError: for a value that is neither function, array nor layer.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> from fkeras import transforms
        >>> body, head = fk.layers.Dense(3, "relu", name="body"), fk.layers.Dense(2, name="head")
        >>> model = fk.Sequential([fk.Input((4,)), body, head]).build(jax.random.key(0))
        >>> transforms.edit(model, {"body": jnp.zeros_like})(jnp.ones((1, 4)))
        Array([[0., 0.]], dtype=float32)
        >>> directions = jax.random.normal(jax.random.key(1), (100, 3))
        >>> def steer(direction):
        ...     return transforms.edit(model, {"body": lambda x: x + direction})(jnp.ones((1, 4)))
        >>> jax.vmap(steer)(directions).shape
        (100, 1, 2)
    """
    where = "transforms.edit"
    check_model(model, where)
    check_changes(changes, where, "{'block3': function}")
    edits: dict[str, list[tuple[Selected, Any]]] = {}
    for place, change in changes.items():
        for one in select(model, place, where):
            if not is_array(change):
                check_part(change, where, one, "the edit")
            edits.setdefault(one.path, []).append((one, change))
    made: dict[tuple[Selected, int], Layer] = {}

    def operation(site: Site) -> Tree:
        value = site.keep()
        for number, (one, change) in enumerate(edits[site.path]):
            if one.node not in (None, site.node):
                continue
            if (one, number) not in made:
                made[one, number] = site.unique(_edit_layer(change, site.call.layer))
            value = behind(site, value, made[one, number], one)
        return value

    new = rebuild(model, dict.fromkeys(edits, operation), where)
    return returned(new, where, "model = transforms.edit(model, changes)", depth=2)


def _edit_layer(change: Any, name: str) -> Layer:
    if isinstance(change, Layer):
        return change if change.name else change.replace(name=f"{name}_edit")
    if is_array(change):
        return Patched(name=f"{name}_edit").replace(value=change, _built=True)
    return Edited(change, name=f"{name}_edit")
