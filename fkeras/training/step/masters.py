"""Master weights: weights of 16 bits that an optimizer updates in float32.

A weight of 16 bits loses every update below 1/256 of its value (bfloat16). With `Trainer(master="float32")`
the state of the optimizer holds a float32 copy of each such weight, the master. A step updates and
constrains the masters, and the weights of the model are the rounded masters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fkeras.engine import option, replace_weights, trainable_weights
from fkeras.engine.config.configurable import with_fields
from fkeras.optimizers import BaseOptimizer, transformation
from fkeras.optimizers.base import mapped
from fkeras.optimizers.updates.extra import in_form
from fkeras.training.records.annotations import Trainer


class MasterState(NamedTuple):
    """The state of `MasterWeights`: the masters by path of their weights, and the optimizer's own state."""

    weights: dict[str, jax.Array]
    inner: Any


class MasterWeights(BaseOptimizer):
    """An optimizer of the masters of all weights below float32; other weights have no master.

    Args:
        optimizer: the optimizer, which sees masters in the place of their weights.
        dtype: the dtype of the masters.
    """

    optimizer: Any = option()
    dtype: str = option()

    def scale_loss(self, loss: jax.Array, opt_state: optax.OptState) -> jax.Array:
        state: Any = opt_state
        scale = getattr(self.optimizer, "scale_loss", None)  # optax has none
        return loss if scale is None else scale(loss, state.inner)

    def finalize(self, opt_state: optax.OptState, weights: optax.Params) -> Any:
        state: Any = opt_state
        if not isinstance(self.optimizer, BaseOptimizer):
            return weights
        masters = _masters(state.weights, weights)
        final = self.optimizer.finalize(state.inner, masters)
        return weights if final is masters else _like(final, weights)

    def _init(self, weights: optax.Params) -> MasterState:
        masters = _masters(self._copies(weights), weights)
        return MasterState(self._copies(weights), transformation(self.optimizer).init(masters))

    def _copies(self, weights: Any) -> dict[str, jax.Array]:
        """Returns a master for each weight of fewer bits."""
        bits = jnp.finfo(self.dtype).bits
        return {
            path: weight.astype(self.dtype)
            for path, weight in weights.items()
            if jnp.issubdtype(weight.dtype, jnp.floating) and jnp.finfo(weight.dtype).bits < bits
        }

    def _mapped(self, function: Callable[..., Any], paths: Sequence[str]) -> MasterWeights:
        return with_fields(self, {"optimizer": mapped(self.optimizer, function, paths)})

    def _update(
        self,
        gradients: optax.Updates,
        state: Any,
        weights: optax.Params | None = None,
        **extra: Any,
    ) -> tuple[Any, MasterState]:
        masters = _masters(state.weights, weights)
        extra = in_form(extra, lambda tree: _like(tree, weights), lambda tree: _like(tree, masters))
        inner = optax.with_extra_args_support(transformation(self.optimizer))
        deltas, new_inner = inner.update(_like(gradients, masters), state.inner, masters, **extra)
        new: Any = optax.apply_updates(masters, deltas)
        return deltas, MasterState({path: new[path] for path in state.weights}, new_inner)


def _masters(copies: Mapping[str, jax.Array], weights: Any) -> dict[str, Any]:
    """Returns the master of each weight; the weight itself, where no master belongs to its value.

    A callback or a user may have changed a weight since the last step.
    """
    masters = dict(weights)
    for path, copy in copies.items():
        weight = weights[path]
        # as bits: XLA may compare rounded floats before their rounding
        same = _bits(copy.astype(weight.dtype)) == _bits(weight)
        masters[path] = jnp.where(same, copy, weight.astype(copy.dtype))
    return masters


def _bits(array: jax.Array) -> jax.Array:
    return jax.lax.bitcast_convert_type(array, f"uint{8 * array.dtype.itemsize}")


def _like(tree: Any, others: Any) -> dict[str, Any]:
    return {path: array.astype(others[path].dtype) for path, array in tree.items()}


def optimizer_of(trainer: Trainer) -> Any:
    """Returns the optimizer that a step calls: that of the trainer, around masters if the trainer has them."""
    if trainer.master is None:
        return trainer.optimizer
    return MasterWeights(trainer.optimizer, trainer.master)


def fitted(optimizer: Any, opt_state: Any, weights: Mapping[str, Any]) -> Any:
    """Returns an optimizer's state of a trainer with or without masters in the form that `optimizer` takes."""
    if not isinstance(optimizer, MasterWeights):
        return inner_state(opt_state)
    if isinstance(opt_state, MasterState):
        return opt_state
    return MasterState(optimizer._copies(weights), opt_state)


def inner_state(opt_state: Any) -> Any:
    """Returns the optimizer's own state, without masters."""
    return opt_state.inner if isinstance(opt_state, MasterState) else opt_state


def with_inner_state(opt_state: Any, inner: Any) -> Any:
    """Returns the state with another state of the optimizer itself, and the same masters."""
    return opt_state._replace(inner=inner) if isinstance(opt_state, MasterState) else inner


def moved(weights: Mapping[str, Any], deltas: Any, opt_state: Any) -> dict[str, Any]:
    """Returns the weights after an update: the new masters, and other weights plus their deltas."""
    masters = opt_state.weights if isinstance(opt_state, MasterState) else {}
    others = {path: weight for path, weight in weights.items() if path not in masters}
    new: Any = optax.apply_updates(others, {path: deltas[path] for path in others})
    return new | masters


def rounded(model: Any, weights: Mapping[str, Any], opt_state: Any) -> tuple[Any, Any]:
    """Returns the model with rounded masters as weights, and the state with the masters.

    Args:
        model: the model with masters in the place of their weights, after its constraints.
        weights: the weights before the update, for their dtypes.
        opt_state: the optimizer's state, whose masters are those before the constraints.
    """
    if not isinstance(opt_state, MasterState):
        return model, opt_state
    new = trainable_weights(model)
    masters = {path: new[path] for path in opt_state.weights}
    return replace_weights(model, _like(masters, weights)), opt_state._replace(weights=masters)
