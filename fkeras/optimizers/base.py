"""Base class of optimizers: frozen values that create a pair of pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import jax
import optax

from fkeras.engine.config.configurable import Configurable, describe
from fkeras.optimizers.updates.numeric import working_dtype


class BaseOptimizer(Configurable):
    """Base class of optimizers that update all weights together.

    `Optimizer` is the base class of optimizers that update each weight separately.

    Example:
        >>> import fkeras as fk
        >>> isinstance(fk.optimizers.SGD(), BaseOptimizer)
        True
    """

    def __repr__(self) -> str:
        # the rate that a training uses is worth reading even if it is the default
        return describe(self, shown=("learning_rate",))

    def transformation(self) -> optax.GradientTransformationExtraArgs:
        """Returns the optimizer as an optax transformation: the pure functions `init` and `update`.

        Returns:
            A transformation whose updates `optax.apply_updates` adds to the weights.

        Example:
            >>> import jax.numpy as jnp
            >>> import fkeras as fk
            >>> optimizer = fk.optimizers.SGD(0.5).transformation()
            >>> state = optimizer.init({"w": jnp.ones(2)})
            >>> optimizer.update({"w": jnp.ones(2)}, state)[0]
            {'w': Array([-0.5, -0.5], dtype=float32)}
        """
        # Any: optax's protocols fix the names of the parameters, although optax passes both by
        # position
        init: Any = self._init
        update: Any = self._update
        return optax.GradientTransformationExtraArgs(init, update)

    def _canonical(self) -> Self:
        """Returns the optimizer without the numbers that its state holds, such as the learning rate.

        Both compute the same updates from the same state. Optimizers that differ in these numbers
        alone have equal canonical forms, and share compiled programs.

        Example:
            >>> import fkeras as fk
            >>> fk.optimizers.Adam(0.1)._canonical() == fk.optimizers.Adam(0.2)._canonical()
            True
        """
        return self

    def _mapped(self, function: Callable[..., Any], paths: Sequence[str]) -> Self:
        """Returns the optimizer with `function(inner, paths)` in the place of each optax transformation.

        Args:
            paths: paths of the weights; the function receives the paths that a transformation updates.

        Example:
            >>> import optax, fkeras as fk
            >>> optimizer = fk.optimizers.LossScaleOptimizer(optax.sgd(0.1))
            >>> optimizer._mapped(lambda old, paths: optax.identity(), ["w"]).inner_optimizer.init({})
            EmptyState()
        """
        return self

    def scale_loss(self, loss: jax.Array, opt_state: optax.OptState) -> jax.Array:
        """Returns the scaled loss to differentiate; `update` divides the gradients by the factor.

        Args:
            loss: the loss, a scalar.
            opt_state: the optimizer's state, which may hold the factor.

        Example:
            >>> import jax.numpy as jnp
            >>> import fkeras as fk
            >>> fk.optimizers.SGD(loss_scale_factor=8.0).scale_loss(jnp.float32(0.5), None)
            Array(4., dtype=float32)
        """
        return loss

    def finalize(self, opt_state: optax.OptState, weights: optax.Params) -> Any:
        """Returns the final weights of a training: their moving average, if the state has one.

        Args:
            opt_state: the optimizer's state.
            weights: the trained weights.

        Example:
            >>> import jax.numpy as jnp
            >>> import fkeras as fk
            >>> optimizer = fk.optimizers.SGD(0.5, use_ema=True, ema_momentum=0.5)
            >>> tx, weights = optimizer.transformation(), jnp.float32(2.0)
            >>> state = tx.init(weights)
            >>> for _ in range(2):
            ...     delta, state = tx.update(jnp.float32(1.0), state, weights)
            ...     weights = weights + delta
            >>> weights, optimizer.finalize(state, weights)
            (Array(1., dtype=float32), Array(1.25, dtype=float32))
        """
        return weights

    def _check_paths(self, paths: Sequence[str]) -> None:
        """Rejects patterns of the optimizer that match no weight of a model.

        Args:
            paths: the paths of all weights of the model, including frozen weights.

        Raises:
            ValueError: if a pattern is the first match of no weight.

        Example:
            >>> import fkeras as fk
            >>> fk.optimizers.SGD()._check_paths(["dense/kernel"])
        """

    def _idle_names(self, paths: Sequence[str]) -> Iterator[str]:
        """Yields a warning for each name of excluded weights that matches no weight of a model.

        Args:
            paths: the paths of all weights of the model, including frozen weights.

        Example:
            >>> import fkeras as fk
            >>> optimizer = fk.optimizers.AdamW(exclude_from_weight_decay=["bais"])
            >>> [text[:52] for text in optimizer._idle_names(["dense/bias"])]
            ["AdamW: exclude_from_weight_decay: 'bais' matches no "]
        """
        yield from ()

    def _init(self, weights: optax.Params) -> Any:
        raise NotImplementedError(
            f"{type(self).__name__}: an optimizer needs its own slots and step. Subclass "
            "fk.optimizers.Optimizer."
        )

    def _update(
        self,
        gradients: optax.Updates,
        state: optax.OptState,
        weights: optax.Params | None = None,
        **extra: Any,
    ) -> tuple[Any, Any]:
        raise NotImplementedError(
            f"{type(self).__name__}: an optimizer needs its own slots and step. Subclass "
            "fk.optimizers.Optimizer."
        )


def mapped(optimizer: Any, function: Callable[..., Any], paths: Sequence[str]) -> Any:
    """Applies `BaseOptimizer._mapped`, or the function to an optimizer that is an optax transformation."""
    if isinstance(optimizer, BaseOptimizer):
        return optimizer._mapped(function, paths)
    return function(optimizer, paths)


def scaled(loss: jax.Array, factor: Any) -> jax.Array:
    """Multiplies the loss by a factor, in float32 for 16-bit losses, which could overflow."""
    dtype = working_dtype(loss)
    return loss.astype(dtype) * (factor.astype(dtype) if hasattr(factor, "astype") else factor)


def check_has_config(where: str, optimizer: object) -> None:
    """Raises TypeError for an optax transformation, which has no configuration to save."""
    if not isinstance(optimizer, BaseOptimizer):
        raise TypeError(
            f"{where}: an optax transformation has no JSON form and cannot be saved. Use an "
            "optimizer of fkeras."
        )
