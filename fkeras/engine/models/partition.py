"""The weights of a model: split into trainable and frozen, joined, read, replaced and removed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from fkeras.engine.layer.layer import Layer
from fkeras.engine.messages.errors import suggest
from fkeras.engine.migration_hints.keras_objects import check_not_keras
from fkeras.engine.tree.array_list import replace_leaves
from fkeras.engine.tree.skeleton import leaves_of, skeleton_of
from fkeras.engine.tree.sublayers import sublayers

Part = TypeVar("Part", bound=Layer)


def require_layer(model: object, call: str) -> None:
    """Raises a TypeError that names the function `call` for a value that is not a layer."""
    if not isinstance(model, Layer):
        check_not_keras(model, call)
        raise TypeError(
            f"{call}: expected a layer or model, received {type(model).__name__}. Write "
            f"`fk.{call}(run.model)` for a run."
        )


def partition(model: Part) -> tuple[Part, Part]:
    """`(trainable, frozen)`: two copies of the model, each with None in place of the other's leaves.

    `jax.grad` and optimizers skip None, so frozen weights cost no gradient and no optimizer memory.

    Example:
        >>> import jax, fkeras as fk
        >>> layer = fk.freeze(fk.layers.Dense(2).build(jax.random.key(0), (None, 3)))
        >>> trainable, frozen = fk.partition(layer)
        >>> len(jax.tree.leaves(trainable)), len(jax.tree.leaves(frozen))
        (0, 2)
        >>> fk.combine(trainable, frozen) == layer
        True
    """
    require_layer(model, "partition")
    skeleton, leaves = skeleton_of(model), leaves_of(model)
    # flags of leaves, static data: the same structure for every step of a training
    flags = skeleton.trainable
    trained = tuple(leaf if flag else None for leaf, flag in zip(leaves, flags, strict=True))
    frozen = tuple(None if flag else leaf for leaf, flag in zip(leaves, flags, strict=True))
    return skeleton.join(trained), skeleton.join(frozen)


def combine(trainable: Part, frozen: Part) -> Part:
    """Joins the two halves from `partition`.

    Raises:
        ValueError: for halves of different models.

    Example:
        >>> import jax, fkeras as fk
        >>> layer = fk.layers.Dense(2).build(jax.random.key(0), (None, 3))
        >>> fk.combine(*fk.partition(layer)) == layer
        True
    """
    skeleton = skeleton_of(trainable)
    if skeleton != skeleton_of(frozen):
        raise ValueError(
            f"combine: expected the two halves of one model, received {trainable._where} and "
            f"{frozen._where}, which differ in structure. Pass both results of fk.partition(model)."
        )
    pairs = zip(leaves_of(trainable), leaves_of(frozen), strict=True)
    return skeleton.join(tuple(b if a is None else a for a, b in pairs))


def trainable_weights(model: Layer) -> dict[str, Any]:
    """The trained weights by path: a plain dictionary for gradients and optimizers.

    Example:
        >>> import jax, fkeras as fk
        >>> layer = fk.layers.Dense(2).build(jax.random.key(0), (None, 3))
        >>> {path: weight.shape for path, weight in trainable_weights(layer).items()}
        {'kernel': (3, 2), 'bias': (2,)}
    """
    skeleton = skeleton_of(model)
    weights = zip(skeleton.names, leaves_of(model), skeleton.trainable, strict=True)
    return {name: leaf for name, leaf, trained in weights if trained and leaf is not None}


def overwritten_weights(model: Layer) -> dict[str, Any]:
    """The weights of trainable layers whose gradients are their next values, by path.

    No optimizer updates these weights, such as the scales of float8 training. A training step takes
    gradients with respect to them and stores the gradients as their new values, as `Trainer` does.

    Example:
        >>> import jax, fkeras as fk
        >>> layer = fk.layers.Dense(2).build(jax.random.key(0), (None, 3))
        >>> len(fk.engine.overwritten_weights(fk.quantize(layer, "float8")))
        6
    """
    weights = {}
    for path, sublayer in sublayers(model):
        for name in sublayer._weight_roles.overwritten if sublayer.trainable else ():
            weights[f"{path}/{name}" if path else name] = getattr(sublayer, name)
    return {path: value for path, value in weights.items() if value is not None}


def replace_weights(model: Part, weights: Mapping[str, Any]) -> Part:
    """The model with other arrays for some weights, by path; the inverse of `trainable_weights`.

    Raises:
        ValueError: for an unknown path; names the most similar path.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.Dense(2).build(jax.random.key(0), (None, 3))
        >>> fk.engine.replace_weights(layer, {"bias": jnp.ones(2)}).bias
        Array([1., 1.], dtype=float32)
    """
    skeleton = skeleton_of(model)
    if not weights.keys() <= skeleton.places.keys():
        unknown = next(path for path in weights if path not in skeleton.places)
        raise ValueError(
            f"{model._where}: there is no weight {unknown!r}.{suggest(unknown, skeleton.names)} Its "
            f"weights are: {', '.join(skeleton.names[:12])}{', ...' * (len(skeleton.names) > 12)}."
        )
    return replace_leaves(model, weights)


def unbuilt(model: Part) -> Part:
    """Returns a copy of a layer or model without weights.

    Args:
        model: a layer or model, built or not.

    Example:
        >>> import jax, fkeras as fk
        >>> layer = fk.layers.Dense(2).build(jax.random.key(0), (None, 3))
        >>> fk.engine.unbuilt(layer) == fk.layers.Dense(2)
        True
    """
    require_layer(model, "engine.unbuilt")
    return model._unbuilt()
