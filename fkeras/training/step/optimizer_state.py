"""Creates an optimizer's state, and adapts the state after layers were frozen or unfrozen."""

from __future__ import annotations

import functools
from typing import Any

import jax

from fkeras.engine import FKerasError, Layer, replace_weights, trainable_weights, unfreeze
from fkeras.engine.messages.errors import add_note
from fkeras.engine.tree.skeleton import Skeleton, skeleton_of
from fkeras.training.records.annotations import Optimizer
from fkeras.training.records.state import TrainState
from fkeras.training.step.masters import fitted
from fkeras.training.step.transformations import bound, bound_to, specs_of, structs


def follow(optimizer: Optimizer, opt_state: object, model: Layer) -> Any:
    """Returns the optimizer's state for the weights that are trainable in `model` now.

    A weight that stays trainable keeps its slots, an unfrozen weight starts with fresh slots, and
    the slots of a frozen weight are dropped. Step counts and learning rates are kept.

    Args:
        opt_state: the previous state; returned unchanged if it fits.

    Raises:
        FKerasError: if the state belongs to another model or optimizer.
    """
    trainable, given = trainable_weights(model), opt_state
    opt_state = fitted(optimizer, opt_state, trainable)
    expected_specs = state_specs(optimizer, skeleton_of(model), specs_of(model))
    if jax.tree.structure(expected_specs) == jax.tree.structure(opt_state):
        if _shapes(expected_specs) != _shapes(opt_state):
            raise _other_state_error(optimizer, opt_state, expected_specs)
        if opt_state is given:
            return opt_state
        # slots of optax have the dtypes of the weights, or of their masters
        return jax.tree.map(lambda a, spec: a.astype(spec.dtype), opt_state, expected_specs)
    # Every path of the previous state must exist in the state of the fully unfrozen model:
    # otherwise the state was not made for any frozen or unfrozen version of this model.
    old_leaves, unfrozen = _by_path(opt_state), unfreeze(model)
    init = bound(optimizer, unfrozen).init
    unfrozen_specs = _by_path(jax.eval_shape(init, trainable_weights(unfrozen)))
    if any(
        path not in unfrozen_specs or unfrozen_specs[path].shape != leaf.shape
        for path, leaf in old_leaves.items()
    ):
        raise _other_state_error(optimizer, opt_state, expected_specs)
    fresh_state = bound(optimizer, model).init(trainable)
    paths, structure = jax.tree_util.tree_flatten_with_path(fresh_state)
    return structure.unflatten(
        [old_leaves.get(jax.tree_util.keystr(path), fresh) for path, fresh in paths]
    )


def start(optimizer: Optimizer, model: Layer) -> Any:
    """Returns the state of an optimizer before the first step.

    Raises:
        ValueError: if a transformation of optax rejects the weights; a note describes the form
            in which a trainer passes the weights.
    """
    weights = trainable_weights(model)
    try:
        return bound(optimizer, model).init(weights)
    except Exception as error:
        if not hasattr(optimizer, "finalize"):
            first = next(iter(weights), "dense/kernel")
            add_note(
                error,
                "A Trainer passes the trainable weights by path to its optimizer, "
                f"{{{first!r}: array, ...}}. Labels and masks have that form, "
                f"{{{first!r}: 'label', ...}}, or are results of jax.tree.map(function, model); a "
                "function of the weights receives the dictionary.",
            )
        raise


def finalized(optimizer: Any, run: TrainState) -> TrainState:
    """Returns the run with the optimizer's final weights: their average, with `use_ema`."""
    if not hasattr(optimizer, "finalize"):  # a plain optax transformation
        return run
    weights = trainable_weights(run.model)
    final_weights = optimizer.finalize(run.opt_state, weights)
    return (
        run
        if final_weights is weights
        else run.replace(model=replace_weights(run.model, final_weights))
    )


# Cached: every epoch asks for the same specs, and `eval_shape` traces the whole optimizer.
@functools.lru_cache(maxsize=64)
def state_specs(optimizer: Optimizer, skeleton: Skeleton, specs: tuple) -> Any:
    """Returns the specs of the optimizer's state for weights with these specs."""
    return jax.eval_shape(bound_to(optimizer, skeleton, specs).init, structs(specs))


def _by_path(tree: object) -> dict[str, Any]:
    pairs = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path): leaf for path, leaf in pairs}


def _shapes(tree: object) -> list[tuple[int, ...]]:
    return [leaf.shape for leaf in jax.tree.leaves(tree)]


def _other_state_error(
    optimizer: Optimizer, opt_state: object, expected_specs: object
) -> FKerasError:
    received, expected = _by_path(opt_state), _by_path(expected_specs)
    different_paths = [
        path
        for path in received
        if path not in expected or expected[path].shape != received[path].shape
    ]
    optimizer_name = getattr(optimizer, "name", None) or type(optimizer).__name__
    shown = ", ".join(f"{path} {tuple(received[path].shape)}" for path in different_paths[:3])
    return FKerasError(
        f"Trainer: expected the state of {optimizer_name} for the weights of run.model, "
        f"{len(expected)} arrays, received {len(received)} arrays; different in run.opt_state: "
        f"{shown or 'too few arrays'}. The state belongs to another model or optimizer: create a "
        "new run, trainer.init(model, key), which keeps the weights of a built model."
    )
