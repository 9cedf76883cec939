"""Weights of a layer: declared as fields, drawn by initializers, regularized and constrained.

The fields `kernel_initializer`, `kernel_regularizer` and `kernel_constraint` of a layer, if they
exist, apply to the weight `kernel`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import jax
import numpy as np

from fkeras.engine.tree.array_list import replace_leaves
from fkeras.engine.tree.axes import check_letters
from fkeras.engine.tree.skeleton import WEIGHT, skeleton_of
from fkeras.engine.tree.sublayers import children, sublayers
from fkeras.engine.tree.walk import join_path
from fkeras.engine.values.annotations import Layer, SomeLayer
from fkeras.engine.values.random import ShapeKey, fold_in, shape_zeros

# initializers index the axes with 32 bits
_LONGEST = 1 << 31


def weight(
    *,
    prefix: str | None = None,
    initializer: Callable | None = None,
    trainable: bool = True,
    overwritten: bool = False,
    dtype: str | None = None,
    axes: str | None = None,
    init: Literal[False] = False,
) -> Any:
    """Declares a field that holds a trained array.

    Annotate the field with the type that a built layer has: `jax.Array`, or `jax.Array | None` for
    a weight that some configurations omit, such as a bias. The value is None before `build`.

    Args:
        prefix: the initializer, regularizer and constraint are the layer's fields
            `<prefix>_initializer` and so on; defaults to the name of the field.
        initializer: `(key, shape, dtype) -> array`, for a layer without such a field.
        trainable: False for an array that no optimizer updates, such as an array of integers.
        overwritten: whether the gradient of the weight is its next value. `Trainer` replaces the
            weight by its gradient; optimizers skip the weight.
        dtype: a dtype that no dtype policy changes; None for the dtype of the policy.
        axes: a letter for each axis, such as "io", or "_" for an axis without a name. The class
            variable `axis_roles` gives letters a role, such as {"o": "hidden"}, by which a trainer
            splits weights over devices. None for axes without names.
        init: always False: tells type checkers that the constructor does not take the weight.

    Example:
        >>> import jax, fkeras as fk
        >>> class Scale(fk.Layer):
        ...     factor: jax.Array = fk.weight(initializer=jax.nn.initializers.ones)
        ...     def build(self, key, x):
        ...         return self.with_weights(key, factor=x.shape[-1:])
        ...     def call(self, x):
        ...         return x * fk.engine.align(self.factor, x.ndim)
        >>> Scale().build(jax.random.key(0), (None, 3)).factor
        Array([1., 1., 1.], dtype=float32)
    """
    check_letters(axes)
    declared = {"prefix": prefix, "initializer": initializer, "dtype": dtype, "axes": axes}
    declared |= {"trainable": trainable, "overwritten": overwritten}
    return dataclasses.field(default=None, init=init, metadata={WEIGHT: declared})


def subkey(key: jax.Array, name: str | int | jax.Array) -> jax.Array:
    """Returns the key that a name derives from `key`; other names derive unrelated keys.

    Example:
        >>> import jax
        >>> key = jax.random.key(0)
        >>> bool(subkey(key, "kernel") == subkey(key, "bias"))
        False
    """
    return fold_in(key, name)


def lacking_weight(layer: Layer) -> str | None:
    """Returns the name of the first declared weight of a layer that has none of its weights."""
    names = skeleton_of(layer).weights
    lacks_all = all(getattr(layer, name) is None for name in names)
    return names[0] if names and lacks_all else None


def make_weights(layer: Layer, key: jax.Array, shapes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an array for each declared weight in `shapes`; a shape of None makes no weight.

    Raises:
        ValueError: for an undeclared name, an unknown size or a size of 2**31 or more, a number of
            sizes other than that of the declared axes, or a weight without an initializer.
    """
    fields = dataclasses.fields(layer)
    declared = {f.name: f.metadata[WEIGHT] for f in fields if WEIGHT in f.metadata}
    arrays: dict[str, Any] = {}
    for name, shape in shapes.items():
        if name not in declared:
            raise ValueError(
                f"{layer._where}: with_weights received the undeclared weight {name!r} (declared: "
                f"{', '.join(declared) or 'none'}). Declare it: `{name}: Array = weight()`."
            )
        axes = declared[name]["axes"]
        if shape is not None and axes is not None and len(shape) != len(axes):
            raise ValueError(
                f"{layer._where}: the weight {name!r} declares the axes {axes!r}, and received the "
                f"shape {tuple(shape)}. Give weight(axes=...) one letter for each axis."
            )
        if shape is None:
            arrays[name] = None
            continue
        if any(not isinstance(size, int | np.integer) for size in shape):
            raise ValueError(
                f"{layer._where}: the weight {name!r} needs known sizes, received the shape "
                f"{tuple(shape)}. Give the input's last axis (or the axes the weights depend on) "
                "a size, as in fk.Input((None, 8))."
            )
        if any(size >= _LONGEST for size in shape):
            raise ValueError(
                f"{layer._where}: the weight {name!r} needs axes of fewer than 2**31 numbers, received "
                f"the shape {tuple(shape)}. Reduce the layer's sizes."
            )
        initializer = _related(layer, declared[name], name, "initializer")
        if initializer is None:
            raise ValueError(
                f"{layer._where}: the weight {name!r} has no initializer. Give the layer a field "
                f"`{declared[name]['prefix'] or name}_initializer`, or declare "
                "weight(initializer=...)."
            )
        dtype = declared[name]["dtype"] or layer.policy.variable_dtype
        if isinstance(key, ShapeKey):  # shape inference: no draws, no memory
            arrays[name] = shape_zeros(shape, dtype)
            continue
        # a key by name: another weight in the layer changes no draw
        arrays[name] = initializer(fold_in(key, name), tuple(map(int, shape)), dtype)
    return arrays


def _related(layer: Layer, declared: Mapping, name: str, role: str) -> Any:
    # a field of the layer goes before the declaration, which holds for all layers of the class
    field_value = getattr(layer, f"{declared['prefix'] or name}_{role}", None)
    return field_value if field_value is not None else declared.get(role)


def own_weights(layer: Layer, role: str) -> Iterator[tuple[str, Any, Any]]:
    """Yields `(name, array, object)` for each own weight with a regularizer or constraint.

    Args:
        role: "regularizer" or "constraint".
    """
    for field in dataclasses.fields(layer):
        if WEIGHT in field.metadata and field.name not in layer._weight_roles.untrained:
            value = getattr(layer, field.name)
            role_object = _related(layer, field.metadata[WEIGHT], field.name, role)
            if value is not None and role_object is not None:
                yield field.name, value, role_object


def reset_carries(layer: Layer, state: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the state of `layer` with the carries inside reset by the layers that own them."""
    inner = {
        name: child.reset_state(state[name]) for name, child in children(layer) if name in state
    }
    return {**state, **inner}


def weight_losses(layer: Layer) -> tuple:
    """Returns the regularization losses of all trainable layers inside `layer`, itself included."""
    return tuple(
        regularizer(value)
        for _, owner in sublayers(layer)
        if owner.trainable
        for _, value, regularizer in own_weights(owner, "regularizer")
    )


def constrain(layer: SomeLayer) -> SomeLayer:
    """Returns the layer with every trainable weight projected by its constraint.

    `Trainer` calls this function after each update.

    Example:
        >>> import jax, fkeras as fk
        >>> layer = fk.layers.Dense(2, kernel_constraint="non_neg")
        >>> layer = fk.constrain(layer.build(jax.random.key(0), (None, 3)))
        >>> bool((layer.kernel >= 0).all())
        True
    """
    projected = {
        join_path(path, name): constraint(value)
        for path, owner in sublayers(layer)
        if owner.trainable
        for name, value, constraint in own_weights(owner, "constraint")
    }
    return replace_leaves(layer, projected) if projected else layer
