"""Base class of losses: frozen objects that map targets and predictions to a scalar.

`call` returns one loss per sample; `reduction` selects how these become a scalar. A loss computes
in float32 regardless of the model's precision policy, unless `dtype` is set.
"""

from __future__ import annotations

import dataclasses
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
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.engine.values.argument_types import HasShape, Numbers
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
    """Base class of losses: `loss(y_true, y_pred)` reduces the losses of samples to a scalar.

    Subclasses implement `call(y_true, y_pred)`, which returns one loss per sample.

    Args:
        reduction: "sum_over_batch_size" or "mean", the mean of the losses; "sum";
            "mean_with_sample_weight", the sum divided by the sum of the weights; None or "none",
            no reduction: the weighted losses.
        name: label in messages and logs; the class's name for None.
        dtype: the dtype of the computation.

    Shapes:
        targets and predictions, usually (b, ..., d) -> scalar; without a reduction, (b, ...).

    Raises:
        ValueError: if `reduction` is unknown.

    Example:
        >>> import jax.numpy as jnp
        >>> import fkeras as fk
        >>> class Cubic(fk.losses.Loss):
        ...     def call(self, y_true, y_pred):
        ...         return jnp.mean(jnp.abs(y_true - y_pred) ** 3, axis=-1)
        >>> Cubic()(jnp.zeros((2, 1)), jnp.array([[1.0], [2.0]]))
        Array(4.5, dtype=float32)
    """

    _positional: ClassVar[tuple[str, ...]] = ("reduction", "name", "dtype")

    # the kind of targets for the check on the host; `checks.check_targets` lists the kinds
    _targets: ClassVar[str] = "any"
    # whether NaN among the targets means a missing target
    _takes_missing: ClassVar[bool] = False

    reduction: str | None = option(
        default="sum_over_batch_size", convert=reducing.check_reduction, kw_only=True
    )
    name: str | None = option(default=None, convert=text(optional=True), kw_only=True)
    dtype: DTypeName = option(default="float32", convert=dtype_name, kw_only=True)

    def call(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        """Returns one loss per sample, (b, ...). Subclasses implement this method."""
        raise NotImplementedError(
            f"{type(self).__name__}: missing method call(y_true, y_pred). Define a method that "
            "returns the loss of each sample."
        )

    def _target_mask(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array | None:
        """Returns a mask of the losses that count (`ignore_class`, for example); None for all."""
        return None

    def per_sample(self, y_true: Numbers, y_pred: Numbers) -> jax.Array:
        """Returns the losses without sample weights, mask and reduction, (b, ...)."""
        values: Any = self.call(*self._cast(y_true, y_pred))
        if values is None or isinstance(values, tuple | list | Mapping):
            name = getattr(getattr(self, "fn", None), "__name__", type(self).__name__)
            count = 0 if values is None else len(values)
            kind = f"a {type(values).__name__} of {count} values" if count else repr(values)
            raise TypeError(
                f"{name}: expected the losses of the samples as one array, received {kind}. Return one "
                "array; other values are metrics of the trainer, or those of an objective."
            )
        # `call` may compute in a wider dtype; the result has the dtype of the configuration
        return jnp.asarray(values).astype(self.dtype)

    def total(
        self,
        y_true: Numbers,
        y_pred: Numbers,
        sample_weight: Numbers | None = None,
        mask: Numbers | None = None,
        padding: Numbers | None = None,
    ) -> tuple[jax.Array, jax.Array]:
        """Returns the numerator and the denominator of the reduced loss.

        Both are additive over batches: the sums of the numerators and of the denominators of all
        batches give the loss of the whole data set, if `padding` masks padded rows.

        Args:
            y_true: targets.
            y_pred: predictions.
            sample_weight: weights, (b,) or one per loss.
            mask: booleans, (b,) or one per loss; False removes a loss from sum and count.
            padding: booleans (b,); False marks rows that only pad the batch. Their values must
                be finite.

        Returns:
            Two scalars. With reduction "sum" the denominator is 1.

        Raises:
            ValueError: if the loss has no reduction.
        """
        if self.reduction in (None, "none"):
            raise ValueError(
                f"{self._label}: expected a reduction to a scalar, received reduction="
                f"{self.reduction!r}. Use reduction='sum_over_batch_size' or 'sum'."
            )
        values, mask = self._weighable(y_true, y_pred, sample_weight, mask)
        return reducing.total(values, self.reduction, sample_weight, _both(mask, padding))

    @hides_internal_frames
    def __call__(
        self,
        y_true: Numbers,
        y_pred: Numbers,
        sample_weight: Numbers | None = None,
        mask: Numbers | None = None,
    ) -> jax.Array:
        values, mask = self._weighable(y_true, y_pred, sample_weight, mask)
        return reducing.reduce(values, self.reduction, sample_weight, mask)

    def _weighable(
        self,
        y_true: Numbers,
        y_pred: Numbers,
        sample_weight: Numbers | None = None,
        mask: Numbers | None = None,
    ) -> tuple[jax.Array, Numbers | None]:
        """Returns the losses of samples and the mask of the losses that count.

        A sample with weight 0, or a masked sample, may hold NaN or infinity. Neither its values
        nor its gradient affect other samples.

        Args:
            y_true: targets.
            y_pred: predictions.
            sample_weight: weights, (b,) or one per loss.
            mask: booleans, (b,) or one per loss.
        """
        y_true, y_pred = self._cast(y_true, y_pred)
        is_removed = removing.removed(sample_weight, mask)
        if is_removed is not None:
            y_true, y_pred = self._held(is_removed, y_true, y_pred)
        values = self.per_sample(y_true, y_pred)
        if is_removed is not None and is_removed.ndim > values.ndim == 0:
            # a loss that is a scalar for the whole batch has already mixed the removed samples in,
            # so compute the scalar again with zeros in their place
            y_true, y_pred = removing.fill(is_removed, (y_true, y_pred))
            values = self.per_sample(y_true, y_pred)
        return values, self._merged_mask(y_true, y_pred, mask)

    # overridden where samples are compared with each other (`Circle`): there a removed sample
    # needs other values, not only a stopped gradient
    def _held(
        self, is_removed: jax.Array, y_true: jax.Array, y_pred: jax.Array
    ) -> tuple[jax.Array, ...]:
        # losses with an axis argument drop that axis, so match the removed samples without it
        axis = getattr(self, "axis", None)
        return removing.hold(is_removed, (y_true, y_pred), () if axis is None else axis)

    def check_targets(self, y_true: Numbers, y_pred: HasShape) -> None:
        """Checks on the host that targets fit the loss and the model's output.

        Args:
            y_true: a NumPy array of targets, on the host.
            y_pred: an object with the `shape` of the predictions; None is an unknown size.

        Raises:
            ValueError: if the targets do not fit; names the row or the shapes, and a fix.
        """
        checks.check_targets(self._targets, self._label, np.asarray(y_true), y_pred.shape)

    @property
    def _label(self) -> str:
        """Name in messages: `name`, or the class's name."""
        return self.name or type(self).__name__

    def _cast(self, y_true: Numbers, y_pred: Numbers) -> tuple[jax.Array, jax.Array]:
        y_true, y_pred = (
            as_operand(y_true, "y_true"),
            as_operand(y_pred, "y_pred").astype(self.dtype),
        )
        # keep integer labels: float32 holds every integer only up to 2**24, bfloat16 up to 256
        if jnp.issubdtype(y_true.dtype, jnp.floating):
            y_true = y_true.astype(self.dtype)
        return y_true, y_pred

    def _merged_mask(
        self, y_true: jax.Array, y_pred: jax.Array, mask: Numbers | None
    ) -> Numbers | None:
        return _both(self._target_mask(y_true, y_pred), mask)


class FunctionLoss(Loss):
    """A loss of this package: a function whose further arguments are the fields of the class.

    Args of the family:
        Other arguments: those of `Loss`.
    """

    #: function of targets, predictions and the fields that the class declares
    _function: ClassVar[Callable[..., jax.Array]]

    def call(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        return self._function(y_true, y_pred, **function_options(self, Loss))


def function_options(value: Configurable, base: type[Configurable]) -> dict[str, Any]:
    """Returns the fields that are arguments of a class's `function`: those that `base` lacks."""
    # a user's subclass may declare further fields, which the function does not take
    owner: Any = next(cls for cls in type(value).__mro__ if "_function" in vars(cls))
    shared = {field.name for field in dataclasses.fields(base)}
    names = (field.name for field in dataclasses.fields(owner) if field.name not in shared)
    return {name: getattr(value, name) for name in names}


def _both(own_mask: Numbers | None, mask: Numbers | None) -> Numbers | None:
    """Returns the logical and of two masks; None is a mask that is True everywhere."""
    if own_mask is None or mask is None:
        return own_mask if mask is None else mask
    small, large = (as_operand(m, "mask").astype(bool) for m in (own_mask, mask))
    # new axes come last, so a mask (b,) selects samples of a mask (b, t)
    if small.ndim > large.ndim:
        small, large = large, small
    return reducing.align_weight(small, large, "mask") & large


def with_function(
    config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None
) -> Mapping[str, Any]:
    """Returns a wrapper's configuration in which a name in `fn` is replaced by its function."""
    # Keras's configurations store the name of one of its own loss functions, or a nested dict
    name = config.get("fn")
    if not isinstance(name, str):
        return config
    return {**config, "fn": resolve(name, "keras.losses", custom_objects)}


class LossFunctionWrapper(Loss):
    """A function `fn(y_true, y_pred)` that returns the losses of samples, wrapped as a `Loss`.

    A last axis of size 1 that only targets or only predictions have is added or dropped before
    the call of `fn`. Integer targets stay integers. See `Loss` for `reduction`, `name` and
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
        pair = reducing.align_pair(y_true, y_pred)
        try:
            return self.fn(*pair)
        except TypeError as error:
            # without a frame below this one, Python could not bind the arguments
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise
            name = getattr(self.fn, "__name__", type(self.fn).__name__)
            raise TypeError(
                f"loss {name!r}: expected a function of targets and predictions, but the call failed: "
                f"{error}. Write def {name}(y_true, y_pred)."
            ) from None
