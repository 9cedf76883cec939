"""Freezing, and splitting a model into what is trained and what is not."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping
from typing import Any

from fkeras.engine.effects import refreshed
from fkeras.engine.errors import suggest
from fkeras.engine.frozen import FrozenDict
from fkeras.engine.layer import Layer
from fkeras.engine.model import set_trainable
from fkeras.engine.network import Network
from fkeras.engine.skeleton import leaves_of, skeleton_of
from fkeras.engine.weights import sublayers

Pattern = str | tuple[str, ...] | list[str] | Callable[[str, Layer], bool]


def freeze(model: Layer, pattern: Pattern = "*") -> Any:
    """A copy whose layers that match are not trainable, with all layers inside them.

    Args:
        model: a layer or model.
        pattern: a pattern for layer paths such as "block1*" or "encoder/dense", a list of them, or
            a function of path and layer.

    Raises:
        ValueError: where no layer matches.

    Example:
        >>> import fkeras as fk
        >>> x = fk.Input((4,))
        >>> model = fk.Model(x, fk.layers.Dense(2, name="head")(fk.layers.Dense(3, name="body")(x)))
        >>> fk.freeze(model, "bo*").layers["body"].trainable
        False
    """
    return _mark(model, pattern, False)


def unfreeze(model: Layer, pattern: Pattern = "*") -> Any:
    """A copy whose layers that match are trainable again; the inverse of `freeze`.

    Example:
        >>> import fkeras as fk
        >>> fk.unfreeze(fk.freeze(fk.layers.Dense(2))).trainable
        True
    """
    return _mark(model, pattern, True)


def _mark(model: Layer, pattern: Pattern, trainable: bool) -> Any:
    matches = matcher(pattern)
    if pattern == "*":
        return set_trainable(model, trainable)
    require_match(model, pattern)

    def mark(path: str, layer: Layer) -> Layer | None:
        return set_trainable(layer, trainable) if path and matches(path, layer) else None

    return replace_layers(model, mark)


def require_match(model: Layer, pattern: Pattern) -> None:
    """Raises where no layer inside `model` matches."""
    matches = matcher(pattern)
    paths = [path for path, layer in sublayers(model) if path]
    if not any(matches(path, layer) for path, layer in sublayers(model) if path):
        shown = pattern if isinstance(pattern, str) else str(pattern)
        raise ValueError(
            f"{model.where}: no layer matches {shown!r}.{suggest(shown.strip('*'), paths)} Its "
            f"layers are: {', '.join(paths[:12])}{', ...' if len(paths) > 12 else ''}."
        )


def matcher(pattern: Pattern) -> Callable[[str, Layer], bool]:
    """Whether a path and its layer match a pattern, as a function of both."""
    if callable(pattern):
        return pattern
    patterns = (pattern,) if isinstance(pattern, str) else tuple(pattern)
    return lambda path, layer: any(fnmatch.fnmatchcase(path, p) for p in patterns)


def replace_layers(
    layer: Layer, change: Callable[[str, Layer], Layer | None], path: str = ""
) -> Any:
    """A copy in which other layers stand for some.

    Args:
        layer: a layer or model.
        change: called with a path and its layer, `layer` itself first; what it returns stands in
            its place. Where it returns None, the layers inside are looked at.
        path: the path of `layer`.

    Example:
        >>> import fkeras as fk
        >>> model = fk.Sequential([fk.Input((4,)), fk.layers.Dense(2, name="head")])
        >>> other = fk.engine.replace_layers(
        ...     model, lambda path, layer: layer.replace(units=3) if path == "head" else None)
        >>> other.layers["head"].units
        3
    """
    found = change(path, layer)
    if found is not None:
        return found

    def inside(value: Any, at: str) -> Any:
        if isinstance(value, Layer):
            return replace_layers(value, change, at)
        if isinstance(value, tuple):
            return tuple(inside(v, f"{at}/{i}" if at else str(i)) for i, v in enumerate(value))
        if isinstance(value, FrozenDict):
            return FrozenDict({k: inside(v, f"{at}/{k}" if at else k) for k, v in value.items()})
        return value

    changed = {}
    for name in skeleton_of(layer).children:
        prefix = "" if name == layer.transparent_field else name
        at = f"{path}/{prefix}" if path and prefix else path or prefix
        changed[name] = inside(getattr(layer, name), at)
    if not changed:
        return layer
    made = layer.replace(**changed)
    return made.replace(graph=refreshed(made)) if isinstance(made, Network) else made


def partition(model: Any) -> tuple[Any, Any]:
    """`(trainable, frozen)`: two copies of the model, each with None for the other's leaves.

    Gradients and optimizers see only the leaves that are there, so frozen weights cost neither.

    Example:
        >>> import jax, fkeras as fk
        >>> layer = fk.freeze(fk.layers.Dense(2).build(jax.random.key(0), (None, 3)))
        >>> trainable, frozen = fk.partition(layer)
        >>> len(jax.tree.leaves(trainable)), len(jax.tree.leaves(frozen))
        (0, 2)
        >>> fk.combine(trainable, frozen) == layer
        True
    """
    skeleton, leaves = skeleton_of(model), leaves_of(model)
    flags = skeleton.trainable
    trained = tuple(leaf if flag else None for leaf, flag in zip(leaves, flags, strict=True))
    frozen = tuple(None if flag else leaf for leaf, flag in zip(leaves, flags, strict=True))
    return skeleton.join(trained), skeleton.join(frozen)


def combine(trainable: Any, frozen: Any) -> Any:
    """The model that `partition` split.

    Raises:
        ValueError: where the two are not halves of one model.

    Example:
        >>> import jax, fkeras as fk
        >>> layer = fk.layers.Dense(2).build(jax.random.key(0), (None, 3))
        >>> fk.combine(*fk.partition(layer)) == layer
        True
    """
    skeleton = skeleton_of(trainable)
    if skeleton != skeleton_of(frozen):
        raise ValueError(
            f"combine: expected the two halves of one model, received {trainable.where} and "
            f"{frozen.where}, which differ in structure. Pass what fk.partition(model) returned."
        )
    pairs = zip(leaves_of(trainable), leaves_of(frozen), strict=True)
    return skeleton.join(tuple(b if a is None else a for a, b in pairs))


def trainable_weights(model: Any) -> dict[str, Any]:
    """The weights that are trained, by path: a plain dictionary for gradients and optimizers.

    Example:
        >>> import jax, fkeras as fk
        >>> layer = fk.layers.Dense(2).build(jax.random.key(0), (None, 3))
        >>> {path: weight.shape for path, weight in trainable_weights(layer).items()}
        {'kernel': (3, 2), 'bias': (2,)}
    """
    skeleton = skeleton_of(model)
    rows = zip(skeleton.names, leaves_of(model), skeleton.trainable, strict=True)
    return {name: leaf for name, leaf, trained in rows if trained and leaf is not None}


def overwritten_weights(model: Any) -> dict[str, Any]:
    """The weights of trainable layers whose gradients are their next values, by path.

    No optimizer moves them: a step differentiates by them too, and puts what it gets in their
    places, as `Trainer` does.

    Example:
        >>> import jax, fkeras as fk
        >>> layer = fk.layers.Dense(2).build(jax.random.key(0), (None, 3))
        >>> len(fk.engine.overwritten_weights(fk.quantize(layer, "float8")))
        6
    """
    found = {}
    for path, one in sublayers(model):
        for name in one.overwritten if one.trainable else ():
            found[f"{path}/{name}" if path else name] = getattr(one, name)
    return {path: value for path, value in found.items() if value is not None}


def replace_weights(model: Any, weights: Mapping[str, Any]) -> Any:
    """The model with other arrays in some places, by path; the inverse of `trainable_weights`.

    Raises:
        ValueError: for a path that the model does not have, with the nearest one.

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
            f"{model.where}: there is no weight {unknown!r}.{suggest(unknown, skeleton.names)} Its "
            f"weights are: {', '.join(skeleton.names[:12])}{', ...' * (len(skeleton.names) > 12)}."
        )
    leaves = list(leaves_of(model))
    for path, weight in weights.items():
        leaves[skeleton.places[path]] = weight
    return skeleton.join(tuple(leaves))
