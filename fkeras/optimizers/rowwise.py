"""Updates of the rows of embedding tables that a batch reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Self

import jax
import optax

from fkeras.engine.config.configurable import option, with_fields
from fkeras.engine.config.converters import text
from fkeras.engine.config.field_types import Words
from fkeras.optimizers.base import BaseOptimizer, check_has_config, mapped
from fkeras.optimizers.naming import Identifier, get, transformation
from fkeras.optimizers.options import words


def _inner(value: Identifier) -> Any:
    optimizer: Any = get(value)
    if optimizer is None or isinstance(optimizer, Rowwise):
        raise TypeError(
            f"expected an optimizer for the rows, received {optimizer!r}. For example 'adagrad'."
        )
    parts = [optimizer, getattr(optimizer, "inner_optimizer", None)]
    parts += [part for _, part in getattr(optimizer, "optimizer_map", ())]
    if any(_accumulates(part) for part in parts):
        raise ValueError(
            "expected an optimizer that changes the weights in each step, received one that "
            "accumulates gradients: rows of earlier batches would be lost. Leave out "
            "gradient_accumulation_steps, and use larger batches."
        )
    return optimizer


def _accumulates(optimizer: object) -> bool:
    steps = getattr(optimizer, "gradient_accumulation_steps", None)
    return steps is not None or isinstance(optimizer, optax.MultiSteps)


class Rowwise(BaseOptimizer):
    """Updates only the rows of embedding tables that a batch reads.

    A step of a `Trainer` reads the distinct ids of the batch, differentiates for their rows alone, and
    applies the inner optimizer to these rows and their slots. Time and memory of a step do not depend on
    the number of rows of a table. Other weights are updated as by the inner optimizer.

    With SGD without momentum and with Adagrad, the updates are those of the inner optimizer alone. Momentum,
    Adam's averages, weight decay and moving averages of weights stand still for a row that no batch reads.

    A table that a batch could read completely is updated completely. The optax form of this optimizer is that
    of the inner optimizer: only a `Trainer` knows the ids.

    Args:
        inner_optimizer: the optimizer that updates the weights, in any form that `get` accepts.
        tables: the tables: names that occur in their paths, such as "items", or patterns with *, ? or []
            for whole paths. By default all tables of `Embedding` layers.
        name: label in the config; has no effect.

    Raises:
        ValueError: for an inner optimizer that accumulates gradients. `Trainer` raises for a table with a
            regularizer or a constraint, which concern all rows, and for a table that is used outside of
            the calls of its layer, as in tied weights.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> ids = fk.Input((3,), dtype="int32")
        >>> h = fk.layers.Embedding(1_000_000, 8, name="items")(ids)
        >>> model = fk.Model(ids, fk.layers.Dense(1)(fk.layers.GlobalAveragePooling1D()(h)))
        >>> trainer = fk.Trainer(fk.optimizers.Rowwise(fk.optimizers.Adagrad(0.1)), "mse")
        >>> run = trainer.init(model, jax.random.key(0))
        >>> new, _ = trainer.step(run, (jnp.array([[4, 2, 4]]), jnp.ones((1, 1))))
        >>> changed = new.model.layers["items"].embeddings != run.model.layers["items"].embeddings
        >>> jnp.flatnonzero(changed.any(axis=1), size=2)
        Array([2, 4], dtype=int32)
    """

    _positional: ClassVar[tuple[str, ...]] = ("name",)

    inner_optimizer: Any = option(convert=_inner)
    tables: Words = option(default=("*",), convert=words)
    name: str | None = option(default=None, convert=text(optional=True), kw_only=True)

    def _canonical(self) -> Self:
        inner = self.inner_optimizer
        inner = inner._canonical() if isinstance(inner, BaseOptimizer) else inner
        return dataclasses.replace(self, inner_optimizer=inner, name=None)

    def scale_loss(self, loss: jax.Array, opt_state: optax.OptState) -> jax.Array:
        inner = self.inner_optimizer
        return inner.scale_loss(loss, opt_state) if isinstance(inner, BaseOptimizer) else loss

    def finalize(self, opt_state: optax.OptState, weights: optax.Params) -> Any:
        inner = self.inner_optimizer
        return inner.finalize(opt_state, weights) if isinstance(inner, BaseOptimizer) else weights

    def _check_paths(self, paths: Sequence[str]) -> None:
        if isinstance(self.inner_optimizer, BaseOptimizer):
            self.inner_optimizer._check_paths(paths)

    def _idle_names(self, paths: Sequence[str]) -> Iterator[str]:
        if isinstance(self.inner_optimizer, BaseOptimizer):
            yield from self.inner_optimizer._idle_names(paths)

    def _mapped(self, function: Callable[..., Any], paths: Sequence[str]) -> Self:
        return with_fields(self, {"inner_optimizer": mapped(self.inner_optimizer, function, paths)})

    def _init(self, weights: optax.Params) -> Any:
        return transformation(self.inner_optimizer).init(weights)

    def _update(
        self,
        gradients: optax.Updates,
        state: optax.OptState,
        weights: optax.Params | None = None,
        **extra: Any,
    ) -> tuple[Any, Any]:
        inner = optax.with_extra_args_support(transformation(self.inner_optimizer))
        return inner.update(gradients, state, weights, **extra)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments as JSON data.

        Raises:
            TypeError: if the inner optimizer is an optax transformation.
        """
        check_has_config("Rowwise", self.inner_optimizer)
        return super().get_config()
