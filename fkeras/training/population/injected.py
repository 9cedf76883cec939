"""Optimizers and losses with fields that the compiled program takes as arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import optax

from fkeras.authoring.engine import with_fields
from fkeras.engine import option
from fkeras.optimizers import BaseOptimizer

T = TypeVar("T")


def with_placeholders(value: T, names: Iterable[str]) -> T:
    """Returns a copy without the numbers in some fields, so that all numbers share one program.

    The copy keeps whether a number is 0, which decides about the slots of optimizers.
    """
    return with_fields(value, {name: bool(getattr(value, name)) for name in names})


class InjectedState(NamedTuple):
    """The state of `Injected`: the values of the fields, and the optimizer's own state."""

    values: dict[str, jax.Array]
    state: Any


class Injected(BaseOptimizer):
    """An optimizer that reads some of its fields from its state.

    Args:
        optimizer: the optimizer.
        names: the fields.
        schedules: the schedules of the learning rate, among which the state's value chooses.
    """

    optimizer: Any = option()
    names: tuple[str, ...] = option(default=())
    schedules: tuple[Any, ...] = option(default=())

    def _canonical(self) -> Injected:
        numbers = [name for name in self.names if name != "learning_rate"]
        optimizer = with_placeholders(self.optimizer._canonical(), numbers)
        return Injected(optimizer, self.names, self.schedules)

    def scale_loss(self, loss: jax.Array, opt_state: optax.OptState) -> jax.Array:
        state: Any = opt_state
        return self._member(state).scale_loss(loss, state.state)

    def _member(self, state: InjectedState) -> BaseOptimizer:
        fields: dict[str, Any] = dict(state.values)
        if self.schedules:
            index = fields["learning_rate"]
            fields["learning_rate"] = lambda count: jax.lax.switch(
                index,
                [lambda n, s=s: jnp.asarray(s(n)).astype("float32") for s in self.schedules],
                count,
            )
        return with_fields(self.optimizer, fields)

    def _init(self, weights: optax.Params) -> InjectedState:
        values = {
            name: jnp.zeros((), "int32" if name == "learning_rate" else "float32")
            for name in self.names
        }
        return InjectedState(values, self.optimizer.transformation().init(weights))

    def _mapped(self, function: Callable[..., Any], paths: Sequence[str]) -> Injected:
        return with_fields(self, {"optimizer": self.optimizer._mapped(function, paths)})

    def _update(
        self,
        gradients: optax.Updates,
        state: Any,
        weights: optax.Params | None = None,
        **extra: Any,
    ) -> tuple[Any, Any]:
        update = self._member(state).transformation().update
        deltas, inner = update(gradients, state.state, weights, **extra)
        return deltas, InjectedState(state.values, inner)
