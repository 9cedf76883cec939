"""Transformations of optax in a training: the form of their weights, and the arguments they take.

A trainer passes the trainable weights by path to its optimizer. Masks of optax may also be trees over
the model: such a transformation needs weights in the form of the model. The state of an optimizer is by
path in both cases.

Only the code of a transformation determines which arguments it takes: `bound` tries the forms and the
arguments on shapes.
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from fkeras.engine import Layer, trainable_weights
from fkeras.engine.tree.labels import form_of_labels
from fkeras.engine.tree.skeleton import Skeleton, leaves_of, skeleton_of
from fkeras.engine.tree.walk import is_layer
from fkeras.optimizers import get, transformation
from fkeras.optimizers.base import mapped
from fkeras.optimizers.updates.extra import NAMES, extra_arguments, in_form
from fkeras.training.records.annotations import Optimizer

_Weights = Mapping[str, Any]
_PROBE = (("dense/kernel", (3, 2), "float32"), ("dense/bias", (2,), "float32"))


def bound(optimizer: Optimizer, model: Layer) -> optax.GradientTransformationExtraArgs:
    """Returns the transformation of an optimizer for the trainable weights of a model, by path.

    Its `update` takes the arguments of `extra_arguments`.

    Raises:
        Exception: the error of a transformation that rejects the weights.
        ValueError: for a transformation whose updates have other shapes than the weights, or whose
            state changes its structure.
    """
    return bound_to(optimizer, skeleton_of(model), specs_of(model))


def specs_of(model: Layer) -> tuple:
    """Returns `(path, shape, dtype)` of each trainable weight of a model."""
    return tuple((p, weight.shape, weight.dtype) for p, weight in trainable_weights(model).items())


# Cached: each epoch asks for the same transformation, and the search traces the optimizer.
@functools.lru_cache(maxsize=64)
def bound_to(
    optimizer: Optimizer, skeleton: Skeleton, specs: tuple
) -> optax.GradientTransformationExtraArgs:
    """Returns the transformation of `bound` for weights with these paths, shapes and dtypes."""
    weights = structs(specs)

    def bind(inner: Any, paths: Sequence[str]) -> Any:
        part = {path: weights[path] for path in paths}
        return _fitting(inner, part, form_of_labels(skeleton))

    bound_optimizer: Any = transformation(mapped(get(optimizer), bind, tuple(weights)))
    return bound_optimizer


def refuse_unusable(optimizer: Any) -> None:
    """Rejects transformations of optax that no trainer can call.

    Raises:
        TypeError: with the name of the transformation and the reason.
    """
    mapped(optimizer, lambda inner, paths: _refuse(inner), ())


@functools.lru_cache(maxsize=64)
def _refuse(inner: Any) -> Any:
    try:
        jax.eval_shape(inner.init, structs(_PROBE))
    except Exception:  # masks and labels name the weights of one model, known in `Trainer.init`
        return inner
    try:
        _fitting(inner, structs(_PROBE))
    except Exception as error:
        name = _raised_in(error, inner)
        if name is not None:
            raise TypeError(
                f"expected a transformation that a training can call, received {name}, whose update "
                f"raises {type(error).__name__}: {error} A trainer passes weights by path, the gradient of "
                f"the loss of the batch, and {', '.join(NAMES)}. Pass another transformation, or "
                "write the training loop with jax.grad."
            ) from error
    return inner


def _raised_in(error: Exception, inner: Any) -> str | None:
    """Returns the transformation of optax that raised an error; None for an error of other code."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if frames[-1].f_globals["__name__"] == __name__:  # a missing argument, or a result of `_check`
        names = getattr(inner.update, "__module__", "?"), getattr(inner.update, "__qualname__", "?")
        return ".".join(name.split(".")[0] for name in names)
    names = [f.f_code.co_qualname for f in frames if f.f_globals["__name__"].startswith("optax.")]
    if not frames[-1].f_globals["__name__"].startswith("optax."):
        return None
    local_names = [name for name in names if ".<locals>." in name] or names
    return f"optax.{local_names[-1].split('.')[0]}"


def _fitting(inner: Any, weights: _Weights, form: Skeleton | None = None) -> Any:
    """Returns a transformation that takes weights by path and the arguments of `extra_arguments`.

    Args:
        form: the form of the weights for trees over the model; None without a model.

    Raises:
        Exception: if all trials fail, the error of the first trial with arguments that the update takes.
    """
    failure: Exception | None = None
    makers = [functools.partial(_by_path, inner)]
    if form is not None and weights:
        makers.append(functools.partial(_over_model, inner, form))
    for make in makers:
        for names in _choices(inner):
            trial = make(names)
            try:
                _check(trial, weights)
            except Exception as error:
                if failure is None or "unexpected keyword argument" in str(failure):
                    failure = error
            else:
                return trial
    assert failure is not None
    raise failure


def _choices(inner: Any) -> list[tuple[str, ...]]:
    """Returns names of arguments to call an update with, in the order of the trials."""
    # a chain passes all its arguments to each transformation, and some reject arguments of others
    search = ("value", "grad", "value_fn")
    choices = [NAMES, search, *((name,) for name in NAMES), ()]
    takes_none = isinstance(inner, optax.GradientTransformation) and not isinstance(
        inner, optax.GradientTransformationExtraArgs
    )
    return choices[::-1] if takes_none else choices


def structs(specs: tuple) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns the weights of `specs_of`, by path, without their numbers."""
    return {path: jax.ShapeDtypeStruct(shape, dtype) for path, shape, dtype in specs}


def _check(trial: optax.GradientTransformationExtraArgs, weights: _Weights) -> None:
    state = jax.eval_shape(trial.init, weights)

    def update(weights: Any, state: Any) -> tuple[Any, Any]:
        extra = extra_arguments(_norm, _norm(weights), weights)
        return trial.update(weights, state, weights, **extra)

    # the step reports promotions that the settings of the user forbid
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        updates, new_state = jax.eval_shape(update, weights, state)
    if _shapes(updates) != _shapes(weights):
        raise ValueError(
            "the updates of the optimizer have other shapes than the weights. Use a transformation from "
            "gradients to updates."
        )
    if _shapes(new_state) != _shapes(state):
        raise ValueError(
            "the update changes the structure or the shapes of the optimizer's state, which a "
            "compiled loop cannot carry. Return a state like that of init."
        )


def _shapes(tree: object) -> tuple:
    leaves, structure = jax.tree.flatten(tree)
    return structure, [leaf.shape for leaf in leaves]


def _norm(weights: Any) -> jax.Array:
    squares = [jnp.sum(jnp.square(jnp.abs(w))).astype("float32") for w in jax.tree.leaves(weights)]
    return functools.reduce(jnp.add, squares, jnp.zeros((), "float32"))


def _by_path(inner: Any, names: tuple[str, ...]) -> optax.GradientTransformationExtraArgs:
    def update(gradients: Any, state: Any, weights: Any = None, **extra: Any) -> Any:
        return inner.update(gradients, state, weights, **_only(names, extra))

    return _transformation(inner.init, update)


def _over_model(
    inner: Any, form: Skeleton, names: tuple[str, ...]
) -> optax.GradientTransformationExtraArgs:
    """Returns a transformation by path of a transformation of weights in the form of a model."""

    def tree(weights: Any) -> Any:
        return form.join(weights.get(path) for path in form.names)

    def flat(values: Any, paths: Mapping[str, Any]) -> Any:
        def of_layer(node: Any) -> Any:
            if not is_layer(node):
                return node
            pairs = zip(skeleton_of(node).names, leaves_of(node), strict=True)
            return {path: leaf for path, leaf in pairs if leaf is not None and path in paths}

        return jax.tree.map(of_layer, values, is_leaf=is_layer)

    def joined(like: Any, part: Any) -> Any:
        if not is_layer(like):
            return part
        # a frozen weight has no slot: None, or the empty node of a mask
        pairs = zip(form.names, leaves_of(like), strict=True)
        return form.join(part.get(path, leaf) for path, leaf in pairs)

    def init(weights: Any) -> Any:
        return flat(inner.init(tree(weights)), weights)

    def update(gradients: Any, state: Any, weights: Any, **extra: Any) -> tuple[Any, Any]:
        like = jax.eval_shape(inner.init, tree(weights))
        state = jax.tree.map(joined, like, state, is_leaf=is_layer)
        extra = in_form(extra, functools.partial(flat, paths=weights), tree)
        arguments = tree(gradients), state, tree(weights)
        return flat(inner.update(*arguments, **_only(names, extra)), weights)

    return _transformation(init, update)


# Any: optax's protocols fix the names of parameters that optax passes by position
def _transformation(init: Any, update: Any) -> optax.GradientTransformationExtraArgs:
    return optax.GradientTransformationExtraArgs(init, update)


def _only(names: tuple[str, ...], extra: Mapping[str, Any]) -> dict[str, Any]:
    return {name: extra[name] for name in names if name in extra}
