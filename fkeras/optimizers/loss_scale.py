"""Dynamic loss scaling, for gradients of 16 bits."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import optax

from fkeras.engine.config.configurable import from_configuration, option, with_fields
from fkeras.engine.config.converters import integer, real, text
from fkeras.engine.config.field_types import Integer, Real
from fkeras.optimizers.base import BaseOptimizer, check_has_config, mapped, scaled
from fkeras.optimizers.naming import Identifier, get, transformation
from fkeras.optimizers.rowwise import Rowwise
from fkeras.optimizers.updates.numeric import working_dtype

# options of the inner optimizer that older Keras files write here, always with these values
_NEUTRAL = (
    ("dynamic", True),
    ("use_ema", False),
    ("ema_momentum", 0.99),
    ("learning_rate", 0.0),
)
# bounds of the scale, normal float32 powers of two; in Keras the scale can reach 0 or inf and then
# never changes again
_SMALLEST, _LARGEST = 2.0**-126, 2.0**127


class LossScaleState(NamedTuple):
    """The state of a `LossScaleOptimizer`.

    Attributes:
        scale: the factor of the loss, float32.
        step_counter: the number of updates with finite gradients since the last change of the
            factor, int32.
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


def _inner(value: Identifier) -> Any:
    optimizer: Any = get(value)
    if optimizer is None or isinstance(optimizer, LossScaleOptimizer):
        raise TypeError(
            f"LossScaleOptimizer: expected an inner optimizer that does not scale the loss, "
            f"received {optimizer!r}. For example 'adam'."
        )
    if isinstance(optimizer, Rowwise):
        raise TypeError(
            "LossScaleOptimizer: expected an optimizer of complete weights, received a Rowwise. Put "
            "Rowwise around the LossScaleOptimizer."
        )
    if getattr(optimizer, "loss_scale_factor", None) is not None:
        return dataclasses.replace(optimizer, loss_scale_factor=None)
    return optimizer


class LossScaleOptimizer(BaseOptimizer):
    """Scales the loss by a factor that halves on overflow and doubles after many finite steps.

    An update with a non-finite gradient changes neither the weights nor the inner optimizer's
    state. `scale_loss` multiplies the loss by the factor, and `update` divides the gradients by
    the factor. Differentiate `optimizer.scale_loss(loss, opt_state)`; a `Trainer` does this.

    Args:
        inner_optimizer: the optimizer that updates the weights, in any form that `get` accepts.
            As in Keras, its `loss_scale_factor` is ignored.
        initial_scale: the initial factor.
        dynamic_growth_steps: the number of consecutive updates with finite gradients after which
            the factor doubles.
        name: label in the config; has no effect.

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

    _positional: ClassVar[tuple[str, ...]] = ("name",)

    inner_optimizer: Any = option(convert=_inner)
    initial_scale: Real = option(default=2.0**15, convert=real(above=0))
    dynamic_growth_steps: Integer = option(default=2000, convert=integer(minimum=1))
    name: str | None = option(default=None, convert=text(optional=True), kw_only=True)

    def _canonical(self) -> Self:
        inner = self.inner_optimizer
        inner = inner._canonical() if isinstance(inner, BaseOptimizer) else inner
        return dataclasses.replace(self, inner_optimizer=inner, initial_scale=1.0, name=None)

    def scale_loss(self, loss: jax.Array, opt_state: LossScaleState) -> jax.Array:
        return scaled(loss, opt_state.scale)

    def _check_paths(self, paths: Sequence[str]) -> None:
        if isinstance(self.inner_optimizer, BaseOptimizer):
            self.inner_optimizer._check_paths(paths)

    def _idle_names(self, paths: Sequence[str]) -> Iterator[str]:
        if isinstance(self.inner_optimizer, BaseOptimizer):
            yield from self.inner_optimizer._idle_names(paths)

    def finalize(self, opt_state: LossScaleState, weights: optax.Params) -> Any:
        inner = self.inner_optimizer
        return (
            inner.finalize(opt_state.inner, weights)
            if isinstance(inner, BaseOptimizer)
            else weights
        )

    def _init(self, weights: optax.Params) -> LossScaleState:
        return LossScaleState(
            scale=jnp.asarray(self.initial_scale, "float32"),
            step_counter=jnp.zeros((), "int32"),
            inner=transformation(self.inner_optimizer).init(weights),
        )

    def _mapped(self, function: Callable[..., Any], paths: Sequence[str]) -> Self:
        inner_optimizer = mapped(self.inner_optimizer, function, paths)
        return with_fields(self, {"inner_optimizer": inner_optimizer})

    def _update(
        self,
        gradients: optax.Updates,
        state: LossScaleState,
        weights: optax.Params | None = None,
        **extra: Any,
    ) -> tuple[Any, LossScaleState]:
        inner = optax.with_extra_args_support(transformation(self.inner_optimizer))
        gradients = jax.tree.map(jnp.asarray, gradients)
        # both branches of lax.cond must return updates of the same dtypes: those of `like`
        like = gradients if weights is None else weights
        finite = functools.reduce(
            jnp.logical_and,
            [jnp.isfinite(g).all() for g in jax.tree.leaves(gradients)],
            jnp.asarray(True),
        )

        def unscaled(gradient: jax.Array) -> jax.Array:
            # cast before the division: small 16-bit gradients would underflow to 0
            dtype = working_dtype(gradient)
            return gradient.astype(dtype) / state.scale.astype(dtype)

        def move(gradients: optax.Updates) -> tuple[Any, LossScaleState]:
            gradients = jax.tree.map(unscaled, gradients)
            own = {"grad": gradients} if "grad" in extra else {}
            deltas, new_inner = inner.update(gradients, state.inner, weights, **extra | own)
            deltas = jax.tree.map(lambda d, w: d.astype(w.dtype), deltas, like)
            grows = state.step_counter == self.dynamic_growth_steps - 1
            scale = jnp.where(grows, jnp.minimum(state.scale * 2.0, _LARGEST), state.scale)
            counter = jnp.where(grows, jnp.zeros_like(state.step_counter), state.step_counter + 1)
            return deltas, LossScaleState(scale, counter, new_inner)

        def skip(gradients: optax.Updates) -> tuple[Any, LossScaleState]:
            deltas = jax.tree.map(lambda _, w: jnp.zeros_like(w), gradients, like)
            # the inner state is unchanged, so skipped updates do not advance a schedule
            counter = jnp.zeros_like(state.step_counter)
            scale = jnp.maximum(state.scale * 0.5, _SMALLEST)
            return deltas, LossScaleState(scale, counter, state.inner)

        return jax.lax.cond(finite, move, skip, gradients)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments as JSON data.

        Raises:
            TypeError: if the inner optimizer is an optax transformation.
        """
        check_has_config("LossScaleOptimizer", self.inner_optimizer)
        return super().get_config()

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        """Creates an optimizer from the data of `get_config`, of this package or of Keras."""
        neutral = dict(_NEUTRAL)
        config = {k: v for k, v in config.items() if k not in neutral or v != neutral[k]}
        return from_configuration(cls, config, custom_objects)
