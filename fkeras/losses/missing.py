"""Targets that are partly missing: NaN where a value was not observed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine.config.configurable import option
from fkeras.engine.config.converters import function, text
from fkeras.engine.values.argument_types import HasShape, Numbers
from fkeras.losses.checks import check_call, check_finite
from fkeras.losses.loss import Loss, LossFunctionWrapper
from fkeras.losses.naming import as_loss
from fkeras.losses.reducing import align_pair
from fkeras.losses.regression import mean_squared_error

_check = function()


def _as_function(value: Any) -> Any:
    return _check(as_loss(value) if isinstance(value, str) else value)


class IgnoreMissing(LossFunctionWrapper):
    """Mean of a loss over the targets that are not NaN: a missing target has the weight 0.

    Each number among the targets has a loss of its own; `sample_weight` and masks apply too. As a
    metric, the mean is over all numbers that are not missing.

    Args:
        fn: a loss that is a mean over the last axis, such as "mse", `fk.losses.Huber()` or a function of
            targets and predictions.

    Shapes:
        targets with NaN, and predictions, of one shape -> scalar; without a reduction, that shape.

    Raises:
        TypeError: for a loss that returns no loss for each number.
        ValueError: in calls, for targets of another shape than the predictions.

    Example:
        >>> import fkeras as fk
        >>> loss = fk.losses.IgnoreMissing("mae")
        >>> loss([[1.0, float("nan")], [0.0, 2.0]], [[0.0, 5.0], [0.0, 0.0]])
        Array(1., dtype=float32)
    """

    _takes_missing: ClassVar[bool] = True

    fn: Callable[[jax.Array, jax.Array], jax.Array] = option(
        default=mean_squared_error, convert=_as_function
    )
    name: str | None = option(default="ignore_missing", convert=text(optional=True), kw_only=True)

    def call(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        y_true, y_pred = align_pair(y_true, y_pred)
        check_call(self._label, y_true, y_pred)
        missing = jnp.isnan(y_true)
        # a finite stand-in: the derivative of a loss at NaN is NaN
        y_true = jnp.where(missing, jax.lax.stop_gradient(y_pred).astype(y_true.dtype), y_true)
        compute = self.fn.per_sample if isinstance(self.fn, Loss) else self.fn
        values = compute(y_true[..., None], y_pred[..., None])
        if values.shape != y_true.shape:
            raise TypeError(
                f"{self._label}: expected a loss for each of the targets {y_true.shape}, received losses of "
                f"shape {values.shape} from {self.fn!r}. Use a loss that is a mean over the last axis, such as "
                "'mse'; for class numbers, SparseCategoricalCrossentropy(ignore_class=-1)."
            )
        return jnp.where(missing, 0.0, values)

    def _target_mask(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array | None:
        return ~jnp.isnan(align_pair(y_true, y_pred)[0])

    def check_targets(self, y_true: Numbers, y_pred: HasShape) -> None:
        array = np.asarray(y_true)
        array = np.where(np.isnan(array), np.zeros_like(array), array)
        check_finite(self._label, array)
        if isinstance(self.fn, Loss):
            self.fn.check_targets(array, y_pred)
