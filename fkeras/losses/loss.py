"""What a loss is: a frozen value that maps targets and predictions to a number.

`call` gives the losses of single samples, `reduction` says how they become one number. A loss
computes in float32 whatever the model's precision, unless its `dtype` says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine.config import Configurable, option
from fkeras.losses import checks, reducing


def dtype_name(dtype: Any) -> str:
    """The name of a dtype or of the compute dtype of a policy; "float32" for None."""
    if dtype is None:
        return "float32"
    return jnp.dtype(getattr(dtype, "compute_dtype", dtype)).name


class Loss(Configurable):
    """Losses of samples, reduced to one number: `loss(y_true, y_pred)`.

    Subclass it and write `call(y_true, y_pred)`, which returns the losses of single samples.

    Args:
        reduction: "sum_over_batch_size" or "mean", the mean of the losses; "sum";
            "mean_with_sample_weight", the sum divided by the sum of the weights; None or "none",
            the weighted losses themselves.
        name: the word for messages and logs.
        dtype: the dtype that it computes in.

    Shapes:
        targets and predictions, mostly (b, ..., d) -> one number; without a reduction (b, ...).

    Raises:
        ValueError: for another word as `reduction`.

    Example:
        >>> import jax.numpy as jnp
        >>> import fkeras as fk
        >>> class Cubic(fk.losses.Loss):
        ...     def call(self, y_true, y_pred):
        ...         return jnp.mean(jnp.abs(y_true - y_pred) ** 3, axis=-1)
        >>> Cubic()(jnp.zeros((2, 1)), jnp.array([[1.0], [2.0]]))
        Array(4.5, dtype=float32)
    """

    # what the targets must be, for the host-side check: see `checks.check_targets`
    targets: ClassVar[str] = "any"

    reduction: str | None = option(
        "sum_over_batch_size", convert=reducing.check_reduction, kw_only=True
    )
    name: str | None = option(None, kw_only=True)
    dtype: str = option("float32", convert=dtype_name, kw_only=True)

    def call(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        """The losses of single samples, (b, ...)."""
        raise NotImplementedError(
            f"{type(self).__name__}: a loss needs its own call(y_true, y_pred). Write one that "
            "returns the losses of single samples."
        )

    def target_mask(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array | None:
        """Which losses count, as the targets alone say; None for all."""
        return None

    def per_sample(self, y_true: Any, y_pred: Any) -> jax.Array:
        """The losses before any weight, mask or reduction, (b, ...)."""
        return self.call(*self._cast(y_true, y_pred)).astype(self.dtype)

    def total(
        self, y_true: Any, y_pred: Any, sample_weight: Any = None, mask: Any = None
    ) -> tuple[jax.Array, jax.Array]:
        """The sum of the losses and what it is divided by: their quotient is the loss.

        Sums of batches add up: numerators and denominators of all batches, padded rows masked,
        give the loss of all the data.

        Args:
            y_true: targets.
            y_pred: predictions.
            sample_weight: weights, (b,) or one a loss.
            mask: booleans, (b,) or one a loss; False takes a loss out of sum and count.

        Returns:
            Two scalars. With reduction "sum" the second is 1.

        Raises:
            ValueError: where the loss has no reduction.
        """
        if self.reduction in (None, "none"):
            raise ValueError(
                f"{self.label}: expected a loss of one number, and its reduction is "
                f"{self.reduction!r}. Use reduction='sum_over_batch_size' or 'sum'."
            )
        mask = self._merged_mask(y_true, y_pred, mask)
        return reducing.total(self.per_sample(y_true, y_pred), self.reduction, sample_weight, mask)

    def __call__(
        self, y_true: Any, y_pred: Any, sample_weight: Any = None, mask: Any = None
    ) -> jax.Array:
        mask = self._merged_mask(y_true, y_pred, mask)
        return reducing.reduce(self.per_sample(y_true, y_pred), self.reduction, sample_weight, mask)

    def check_targets(self, y_true: Any, y_pred: Any) -> None:
        """Raises where targets do not fit the loss and the model's output.

        Args:
            y_true: a NumPy array of targets, on the host.
            y_pred: anything with the `shape` of the predictions; None is an unknown size.

        Raises:
            ValueError: naming the row, or the shapes, and the remedy.
        """
        checks.check_targets(self.targets, self.label, np.asarray(y_true), y_pred.shape)

    @property
    def label(self) -> str:
        """The word for messages: the name, or the class's."""
        return self.name or type(self).__name__

    def _cast(self, y_true: Any, y_pred: Any) -> tuple[jax.Array, jax.Array]:
        y_true, y_pred = jnp.asarray(y_true), jnp.asarray(y_pred).astype(self.dtype)
        # labels stay integers: float32 counts to 2**24 only, bfloat16 to 256
        if jnp.issubdtype(y_true.dtype, jnp.floating):
            y_true = y_true.astype(self.dtype)
        return y_true, y_pred

    def _merged_mask(self, y_true: Any, y_pred: Any, mask: Any) -> jax.Array | None:
        own = self.target_mask(*self._cast(y_true, y_pred))
        if own is None or mask is None:
            return own if mask is None else mask
        mask = jnp.asarray(mask).astype(bool)
        return reducing.align_weight(mask, own, "mask") & own


class LossFunctionWrapper(Loss):
    """fn(y_true, y_pred), a function that returns the losses of single samples, as a `Loss`.

    Targets with one axis more or less than the predictions, of size 1, are brought to the same
    number of axes first. Integer targets stay integers. See `Loss` for `reduction`, `name` and
    `dtype`.

    Args:
        fn: a function of two arrays, (b, ...) and (b, ...), that returns (b, ...).

    Example:
        >>> import fkeras as fk
        >>> import jax.numpy as jnp
        >>> loss = fk.losses.LossFunctionWrapper(lambda y, p: jnp.abs(y - p), name="distance")
        >>> loss(jnp.array([1.0, 2.0]), jnp.array([2.0, 4.0]))
        Array(1.5, dtype=float32)
    """

    fn: Callable[[jax.Array, jax.Array], jax.Array] = option()

    def call(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        return jnp.asarray(self.fn(*reducing.align_pair(y_true, y_pred)))
