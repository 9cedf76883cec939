"""What a loss is: a frozen value that maps targets and predictions to a number.

`call` gives the losses of single samples, `reduction` says how they become one number. A loss
computes in float32 whatever the model's precision, unless its `dtype` says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine.config import converters
from fkeras.engine.config.configurable import Configurable, option
from fkeras.engine.config.converters import function, text
from fkeras.engine.config.field_types import DTypeName
from fkeras.engine.config.serialization import resolve
from fkeras.engine.messages.errors import describe_value
from fkeras.engine.values.arrays import as_operand
from fkeras.losses import checks, reducing, removing


def dtype_name(dtype: Any) -> str:
    """Returns the name of a dtype, or of the compute dtype of a policy; "float32" for None.

    Example:
        >>> import jax.numpy as jnp
        >>> dtype_name(jnp.bfloat16)
        'bfloat16'
    """
    if dtype is None:
        return "float32"
    name = converters.dtype_name(getattr(dtype, "compute_dtype", dtype))
    if name is None:
        raise ValueError(
            f"expected a dtype of numbers such as 'float32', received {describe_value(dtype)}."
        )
    return name


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
        default="sum_over_batch_size", convert=reducing.check_reduction, kw_only=True
    )
    name: str | None = option(default=None, convert=text(optional=True), kw_only=True)
    dtype: DTypeName = option(default="float32", convert=dtype_name, kw_only=True)

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
        self,
        y_true: Any,
        y_pred: Any,
        sample_weight: Any = None,
        mask: Any = None,
        padding: Any = None,
    ) -> tuple[jax.Array, jax.Array]:
        """The sum of the losses and what it is divided by: their quotient is the loss.

        Sums of batches add up: numerators and denominators of all batches, padded rows masked,
        give the loss of all the data.

        Args:
            y_true: targets.
            y_pred: predictions.
            sample_weight: weights, (b,) or one a loss.
            mask: booleans, (b,) or one a loss; False takes a loss out of sum and count.
            padding: booleans (b,), as `mask`, for rows that only fill a batch and are finite.

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
        values, mask = self.weighable(y_true, y_pred, sample_weight, mask)
        return reducing.total(values, self.reduction, sample_weight, _both(mask, padding))

    def __call__(
        self, y_true: Any, y_pred: Any, sample_weight: Any = None, mask: Any = None
    ) -> jax.Array:
        values, mask = self.weighable(y_true, y_pred, sample_weight, mask)
        return reducing.reduce(values, self.reduction, sample_weight, mask)

    def weighable(
        self, y_true: Any, y_pred: Any, sample_weight: Any = None, mask: Any = None
    ) -> tuple[jax.Array, jax.Array | None]:
        """The losses of single samples and the mask of those that count.

        A sample of weight 0, or outside of the mask, may hold NaN or infinity: neither reaches the
        losses of other samples, and no gradient of the sample does.

        Args:
            y_true: targets.
            y_pred: predictions.
            sample_weight: weights, (b,) or one a loss.
            mask: booleans, (b,) or one a loss.
        """
        y_true, y_pred = self._cast(y_true, y_pred)
        gone = removing.removed(sample_weight, mask)
        if gone is not None:
            y_true, y_pred = self._held(gone, y_true, y_pred)
        values = self.per_sample(y_true, y_pred)
        if gone is not None and gone.ndim > values.ndim == 0:
            # one number for all samples: only without the removed ones is the number free of them
            y_true, y_pred = removing.fill(gone, (y_true, y_pred))
            values = self.per_sample(y_true, y_pred)
        return values, self._merged_mask(y_true, y_pred, mask)

    def _held(self, gone: jax.Array, y_true: jax.Array, y_pred: jax.Array) -> tuple[jax.Array, ...]:
        axis = getattr(self, "axis", None)
        return removing.hold(gone, (y_true, y_pred), () if axis is None else axis)

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
        y_true, y_pred = (
            as_operand(y_true, "y_true"),
            as_operand(y_pred, "y_pred").astype(self.dtype),
        )
        # labels stay integers: float32 counts to 2**24 only, bfloat16 to 256
        if jnp.issubdtype(y_true.dtype, jnp.floating):
            y_true = y_true.astype(self.dtype)
        return y_true, y_pred

    def _merged_mask(self, y_true: Any, y_pred: Any, mask: Any) -> jax.Array | None:
        return _both(self.target_mask(y_true, y_pred), mask)


def _both(own: jax.Array | None, mask: Any) -> jax.Array | None:
    """True where both are; None stands for True everywhere."""
    if own is None or mask is None:
        return own if mask is None else mask
    small, large = own.astype(bool), as_operand(mask, "mask").astype(bool)
    if small.ndim > large.ndim:
        small, large = large, small
    return reducing.align_weight(small, large, "mask") & large


def with_function(
    config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None
) -> Mapping[str, Any]:
    """Returns the configuration of a wrapper with the function that the entry `fn` names.

    Example:
        >>> with_function({"fn": "mean_squared_error"}, None)["fn"].__name__
        'mean_squared_error'
    """
    name = config.get("fn")
    if not isinstance(name, str):
        return config
    return {**config, "fn": resolve(name, "keras.losses", custom_objects)}


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

    fn: Callable[[jax.Array, jax.Array], jax.Array] = option(convert=function())

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        return super().from_config(with_function(config, custom_objects), custom_objects)

    def call(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        return jnp.asarray(self.fn(*reducing.align_pair(y_true, y_pred)))
