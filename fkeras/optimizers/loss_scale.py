"""Loss scaling that finds its own factor, for gradients of 16 bits."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp

from fkeras.engine.config.configurable import from_configuration, option
from fkeras.engine.config.converters import integer, real, text
from fkeras.engine.config.field_types import Integer, Real
from fkeras.optimizers.base import BaseOptimizer, check_has_config, scaled
from fkeras.optimizers.naming import get, transformation
from fkeras.optimizers.updates.numeric import working_dtype

# what older files of Keras hold for options that belong to the inner optimizer
_NEUTRAL = (
    ("dynamic", True),
    ("use_ema", False),
    ("ema_momentum", 0.99),
    ("learning_rate", 0.0),
)
# powers of two that float32 has; in Keras the scale ends at 0 or inf, and stays there
_SMALLEST, _LARGEST = 2.0**-126, 2.0**127


class LossScaleState(NamedTuple):
    """The state of a `LossScaleOptimizer`.

    Attributes:
        scale: the factor of the loss, float32.
        step_counter: the updates with finite gradients since the factor last changed, int32.
        inner: the state of the inner optimizer.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> tx = fk.optimizers.LossScaleOptimizer("sgd", initial_scale=8.0).transformation()
        >>> state = tx.init({"w": jnp.ones(2)})
        >>> float(state.scale), int(state.step_counter), int(state.inner.count)
        (8.0, 0, 0)
    """

    scale: jax.Array
    step_counter: jax.Array
    inner: Any


def _inner(value: Any) -> Any:
    optimizer: Any = get(value)
    if optimizer is None or isinstance(optimizer, LossScaleOptimizer):
        raise TypeError(
            f"LossScaleOptimizer: expected an optimizer inside that does not scale the loss "
            f"itself, received {optimizer!r}. For example 'adam'."
        )
    if getattr(optimizer, "loss_scale_factor", None) is not None:
        return dataclasses.replace(optimizer, loss_scale_factor=None)
    return optimizer


class LossScaleOptimizer(BaseOptimizer):
    """Scales the loss by a factor that halves on overflow and doubles after a row of good steps.

    An update with a gradient that is not finite moves nothing and leaves the inner state as it is.
    `scale_loss` multiplies the loss by the factor, and `update` divides it out of the gradients,
    so differentiate `optimizer.scale_loss(loss, opt_state)`; a `Trainer` does so by itself.

    Args:
        inner_optimizer: what moves the weights: what `get` takes. Its own `loss_scale_factor` does
            not count, as in Keras.
        initial_scale: the first factor.
        dynamic_growth_steps: after so many updates in a row with finite gradients it doubles.
        name: a word of your own.

    Example:
        >>> import fkeras as fk
        >>> optimizer = LossScaleOptimizer("adam", initial_scale=8.0)
        >>> tx = optimizer.transformation()
        >>> state = tx.init({"w": jnp.ones(2)})
        >>> optimizer.scale_loss(jnp.float32(0.5), state)
        Array(4., dtype=float32)
        >>> deltas, state = tx.update({"w": jnp.array([jnp.inf, 1.0])}, state)
        >>> deltas["w"], state.scale
        (Array([0., 0.], dtype=float32), Array(4., dtype=float32))
    """

    inner_optimizer: Any = option(convert=_inner)
    initial_scale: Real = option(default=2.0**15, convert=real(above=0))
    dynamic_growth_steps: Integer = option(default=2000, convert=integer(minimum=1))
    name: str | None = option(default=None, convert=text(optional=True), kw_only=True)

    def scale_loss(self, loss: jax.Array, opt_state: LossScaleState) -> jax.Array:
        return scaled(loss, opt_state.scale)

    def check_paths(self, paths: Sequence[str]) -> None:
        if isinstance(self.inner_optimizer, BaseOptimizer):
            self.inner_optimizer.check_paths(paths)

    def finalize(self, opt_state: LossScaleState, weights: Any) -> Any:
        inner = self.inner_optimizer
        return (
            inner.finalize(opt_state.inner, weights)
            if isinstance(inner, BaseOptimizer)
            else weights
        )

    def _init(self, weights: Any) -> LossScaleState:
        return LossScaleState(
            scale=jnp.asarray(self.initial_scale, "float32"),
            step_counter=jnp.zeros((), "int32"),
            inner=transformation(self.inner_optimizer).init(weights),
        )

    def _update(
        self, gradients: Any, state: LossScaleState, weights: Any = None
    ) -> tuple[Any, LossScaleState]:
        inner = transformation(self.inner_optimizer)
        gradients = jax.tree.map(jnp.asarray, gradients)
        # the updates have the dtypes of these, whichever branch is taken
        like = gradients if weights is None else weights
        finite = functools.reduce(
            jnp.logical_and,
            [jnp.isfinite(g).all() for g in jax.tree.leaves(gradients)],
            jnp.asarray(True),
        )

        def unscaled(gradient: jax.Array) -> jax.Array:
            # wider before it is divided: small numbers of 16 bits would vanish
            dtype = working_dtype(gradient)
            return gradient.astype(dtype) / state.scale.astype(dtype)

        def move(gradients: Any) -> tuple[Any, LossScaleState]:
            deltas, new = inner.update(jax.tree.map(unscaled, gradients), state.inner, weights)
            deltas = jax.tree.map(lambda d, w: d.astype(w.dtype), deltas, like)
            grows = state.step_counter == self.dynamic_growth_steps - 1
            scale = jnp.where(grows, jnp.minimum(state.scale * 2.0, _LARGEST), state.scale)
            counter = jnp.where(grows, jnp.zeros_like(state.step_counter), state.step_counter + 1)
            return deltas, LossScaleState(scale, counter, new)

        def skip(gradients: Any) -> tuple[Any, LossScaleState]:
            deltas = jax.tree.map(lambda _, w: jnp.zeros_like(w), gradients, like)
            counter = jnp.zeros_like(state.step_counter)
            scale = jnp.maximum(state.scale * 0.5, _SMALLEST)
            return deltas, LossScaleState(scale, counter, state.inner)

        return jax.lax.cond(finite, move, skip, gradients)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments as JSON data.

        Raises:
            TypeError: where the inner optimizer is a transformation of optax.
        """
        check_has_config("LossScaleOptimizer", self.inner_optimizer)
        return super().get_config()

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        """The optimizer that `get_config`, of this package or of Keras, described."""
        neutral = dict(_NEUTRAL)
        config = {k: v for k, v in config.items() if k not in neutral or v != neutral[k]}
        return from_configuration(cls, config, custom_objects)
