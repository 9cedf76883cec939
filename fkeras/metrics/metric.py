"""Base classes of metrics: frozen objects with pure functions over a small state.

`init` returns the initial state, `update` adds a batch, `merge` combines two states and `result`
computes the metric. The state is a dictionary of arrays, so a metric runs inside `jax.jit`,
`jax.lax.scan` and `jax.vmap`, and states from different devices can be merged. Sums are exact
beyond 2**24; see `exact`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp

from fkeras.engine.config.configurable import Configurable, option
from fkeras.engine.config.converters import function, text
from fkeras.engine.config.field_types import DTypeName
from fkeras.engine.values.argument_types import HasShape, Numbers
from fkeras.engine.values.arrays import as_operand
from fkeras.engine.values.registry import named
from fkeras.losses.loss import Loss, dtype_name, function_options, with_function
from fkeras.losses.reducing import align_pair, align_weight, divide_no_nan, merge_weights
from fkeras.metrics import exact

State = exact.State


def weighted(
    values: jax.Array, sample_weight: Numbers | None, mask: Numbers | None
) -> tuple[jax.Array, jax.Array]:
    """Returns values * weights and the weights, both with the shape of `values`.

    A weight of 0 or a mask of False removes a value, even NaN: the product is 0.
    """
    weight, merged_mask = merge_weights(values, sample_weight, mask)
    weights = jnp.ones_like(values) if weight is None else jnp.ones_like(values) * weight
    if merged_mask is not None:
        weights = jnp.where(merged_mask, weights, 0.0)
    # select after the product: NaN * 0 is NaN
    return jnp.where(weights == 0, 0.0, values * weights), weights


class Metric(Configurable):
    """Base class of metrics, with the pure functions `init`, `update`, `merge` and `result`.

    Subclasses implement `init`, `update` and `result`. The default `merge` adds states; a state
    that is not a sum needs its own `merge`.

    Args:
        name: the metric's key in logs.
        dtype: the dtype of the state.

    Example:
        >>> import jax.numpy as jnp
        >>> import fkeras as fk
        >>> class Largest(fk.metrics.Metric):
        ...     def init(self, y_pred=None):
        ...         return {"largest": jnp.zeros((), self.dtype)}
        ...     def update(self, state, y_true, y_pred, sample_weight=None, mask=None):
        ...         error = jnp.max(jnp.abs(y_true - y_pred))
        ...         return {"largest": jnp.maximum(state["largest"], error)}
        ...     def merge(self, a, b):
        ...         return {"largest": jnp.maximum(a["largest"], b["largest"])}
        ...     def result(self, state):
        ...         return state["largest"]
        >>> metric = Largest()
        >>> state = metric.update(metric.init(), jnp.zeros(2), jnp.array([1.0, -3.0]))
        >>> metric.result(state)
        Array(3., dtype=float32)
    """

    _positional: ClassVar[tuple[str, ...]] = ("name", "dtype")

    name: str | None = option(default=None, convert=text(optional=True))
    dtype: DTypeName = option(default="float32", convert=dtype_name)

    def init(self, y_pred: HasShape | None = None) -> State:
        """Returns the initial state.

        Args:
            y_pred: an object with the predictions' `shape`; a few metrics need the shape.
        """
        raise NotImplementedError(_unwritten(self, "init(y_pred=None)"))

    def update(
        self,
        state: State,
        y_true: Numbers,
        y_pred: Numbers,
        sample_weight: Numbers | None = None,
        mask: Numbers | None = None,
    ) -> State:
        """Returns the state after a batch.

        Args:
            state: the state before the batch.
            y_true: targets.
            y_pred: predictions.
            sample_weight: weights, (b,) or one per value.
            mask: booleans, (b,) or one per value; False removes a value.
        """
        raise NotImplementedError(
            _unwritten(self, "update(state, y_true, y_pred, sample_weight=None, mask=None)")
        )

    def merge(self, a: State, b: State) -> State:
        """Returns the state for the data of both states."""
        return exact.merge(a, b)

    def result(self, state: State) -> jax.Array:
        """Returns the metric as an array; 0 for the initial state."""
        raise NotImplementedError(_unwritten(self, "result(state)"))

    @property
    def _label(self) -> str:
        """Name in messages and logs: `name`, or the class's name."""
        return self.name or type(self).__name__


def _unwritten(metric: Metric, method: str) -> str:
    name = type(metric).__name__
    return f"{name}: missing method {method}. Define it in class {name}."


class Batch(NamedTuple):
    """The arguments of `update` for one batch.

    Attributes:
        mask: booleans, or None; False removes a value.
    """

    y_true: Numbers
    y_pred: Numbers
    sample_weight: Numbers | None = None
    mask: Numbers | None = None


class BatchMetric(Metric):
    """Base class of metrics with options before `name` and `dtype`, which are keywords.

    Subclasses implement `_add`, the update for a `Batch`.

    Args of the family:
        Other arguments: those of `Metric`.
    """

    name: str | None = option(default=None, convert=text(optional=True), kw_only=True)
    dtype: DTypeName = option(default="float32", convert=dtype_name, kw_only=True)

    def update(
        self,
        state: State,
        y_true: Numbers,
        y_pred: Numbers,
        sample_weight: Numbers | None = None,
        mask: Numbers | None = None,
    ) -> State:
        return self._add(state, Batch(y_true, y_pred, sample_weight, mask))

    def _add(self, state: State, batch: Batch) -> State:
        raise NotImplementedError


class Sum(Metric):
    """Weighted sum of values over all batches: `update(state, values)`.

    Args:
        Arguments: those of `Metric`.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.Sum()
        >>> metric.result(metric.update(metric.init(), [1.0, 2.0]))
        Array(3., dtype=float32)
    """

    name: str | None = option(default="sum", convert=text(optional=True))

    def init(self, y_pred: HasShape | None = None) -> State:
        return exact.zeros(["total"], (), self.dtype)

    def update(
        self,
        state: State,
        values: Numbers,
        sample_weight: Numbers | None = None,
        mask: Numbers | None = None,
    ) -> State:
        products, _ = weighted(as_operand(values, "values").astype(self.dtype), sample_weight, mask)
        return exact.add(state, {"total": exact.total(products)})

    def result(self, state: State) -> jax.Array:
        return state["total"]


def add_to_mean(
    state: State, values: jax.Array, sample_weight: Numbers | None, mask: Numbers | None
) -> State:
    """Returns a mean's state after a batch; a sample counts as the mean of its values."""
    if values.ndim == 0 and mask is not None and sample_weight is None:
        # as in Keras, one value for the whole batch counts once
        mask = jnp.any(as_operand(mask, "mask"))
    products, weights = weighted(values, sample_weight, mask)
    # as in Keras, `count` counts samples, not values: divide both sums by the values per sample
    size = max(math.prod(values.shape[1:]), 1)
    count: Any = values.size // size
    if not isinstance(count, int):  # a symbolic batch size, as in `jax.export`
        count = jnp.asarray(count, "int32")
    if sample_weight is not None:
        count = _divided(exact.total(weights), size)
    elif mask is not None:  # count in integers: a float sum of ones is inexact above 2**24
        counted: Any = merge_weights(values, None, mask)[1]
        steps = jnp.sum(jnp.broadcast_to(counted, values.shape), dtype="int32")
        # whole samples stay an integer; only the remainder becomes a fraction
        count = steps if size == 1 else (steps // size, (steps % size).astype("float32") / size)
    return exact.add(state, {"total": _divided(exact.total(products), size), "count": count})


def _divided(pair: exact.Pair, size: int) -> exact.Pair:
    high, low = pair
    return pair if size == 1 else (high / size, None if low is None else low / size)


def empty_mean(dtype: str) -> State:
    """Returns the initial state of a mean."""
    return exact.zeros(["total"], (), dtype) | exact.counts(["count"], dtype)


def mean_of(state: State) -> jax.Array:
    """Returns the mean from its state; 0 for the initial state."""
    return divide_no_nan(state["total"], exact.as_float(state, "count"))


class Mean(Metric):
    """Weighted mean of values over all batches: `update(state, values)`.

    Args:
        Arguments: those of `Metric`.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.Mean()
        >>> state = metric.update(metric.init(), [1.0, 2.0])
        >>> metric.result(metric.update(state, [6.0]))
        Array(3., dtype=float32)
    """

    name: str | None = option(default="mean", convert=text(optional=True))

    def init(self, y_pred: HasShape | None = None) -> State:
        return empty_mean(self.dtype)

    def update(
        self,
        state: State,
        values: Numbers,
        sample_weight: Numbers | None = None,
        mask: Numbers | None = None,
    ) -> State:
        values = as_operand(values, "values").astype(self.dtype)
        return add_to_mean(state, values, sample_weight, mask)

    def result(self, state: State) -> jax.Array:
        return mean_of(state)


class MeanMetric(Metric):
    """Mean of a function of targets and predictions.

    Subclasses implement `values(y_true, y_pred)`, which returns one value per sample.

    Args:
        Arguments: those of `Metric`.

    Example:
        >>> import fkeras as fk
        >>> import jax.numpy as jnp
        >>> class Near(fk.metrics.MeanMetric):
        ...     def values(self, y_true, y_pred):
        ...         return jnp.abs(y_true - y_pred) < 0.1
        >>> metric = Near(name="near")
        >>> metric.result(metric.update(metric.init(), jnp.ones(2), jnp.array([1.0, 2.0])))
        Array(0.5, dtype=float32)
    """

    def values(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        """Returns the values to average, (b, ...). Subclasses implement this method."""
        raise NotImplementedError(_unwritten(self, "values(y_true, y_pred)"))

    def _target_mask(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array | None:
        """Returns a mask of the values that count (`ignore_class`, for example); None for all."""
        return None

    def init(self, y_pred: HasShape | None = None) -> State:
        return empty_mean(self.dtype)

    def update(
        self,
        state: State,
        y_true: Numbers,
        y_pred: Numbers,
        sample_weight: Numbers | None = None,
        mask: Numbers | None = None,
    ) -> State:
        y_true, y_pred = (self._cast(y) for y in (y_true, y_pred))
        values, mask = self._weighable(y_true, y_pred, sample_weight, mask)
        return add_to_mean(state, values.astype(self.dtype), sample_weight, mask)

    def _weighable(
        self,
        y_true: jax.Array,
        y_pred: jax.Array,
        sample_weight: Numbers | None,
        mask: Numbers | None,
    ) -> tuple[jax.Array, Numbers | None]:
        """Returns the values and the mask of the values that count."""
        values, own_mask = (
            jnp.asarray(self.values(y_true, y_pred)),
            self._target_mask(y_true, y_pred),
        )
        if own_mask is not None and mask is not None:
            own_mask = own_mask & align_weight(
                as_operand(mask, "mask").astype(bool), own_mask, "mask"
            )
        return values, mask if own_mask is None else own_mask

    def result(self, state: State) -> jax.Array:
        return mean_of(state)

    def _cast(self, y: Numbers) -> jax.Array:
        y = as_operand(y, "y_true or y_pred")
        # class numbers stay integers: a float dtype rounds large ones
        return y.astype(self.dtype) if jnp.issubdtype(y.dtype, jnp.floating) else y


class FunctionMean(MeanMetric):
    """Mean of a function of this package, whose further arguments are the fields of the class.

    Args of the family:
        Other arguments: those of `Metric`.
    """

    #: function of targets, predictions and the fields that the class declares
    _function: ClassVar[Callable[..., jax.Array]]

    def values(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        return self._function(y_true, y_pred, **function_options(self, MeanMetric))


class MeanMetricWrapper(MeanMetric):
    """Mean of a loss, or of a function `fn(y_true, y_pred)` of one value per sample, or per batch.

    Args:
        fn: the function or the `Loss`.
        Other arguments: those of `Metric`.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.MeanMetricWrapper(fk.losses.Huber(), name="huber")
        >>> metric.result(metric.update(metric.init(), [[0.0]], [[3.0]]))
        Array(2.5, dtype=float32)
    """

    name: str | None = option(default=None, convert=text(optional=True), kw_only=True)
    dtype: DTypeName = option(default="float32", convert=dtype_name, kw_only=True)
    fn: Callable[[jax.Array, jax.Array], jax.Array] | Loss = option(convert=function())

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        return super().from_config(with_function(config, custom_objects), custom_objects)

    def values(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        if isinstance(self.fn, Loss):
            return self.fn.per_sample(y_true, y_pred)
        # a loss aligns its arguments; a plain function expects equal ranks
        return self.fn(*align_pair(y_true, y_pred))

    def _target_mask(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array | None:
        return self.fn._target_mask(y_true, y_pred) if isinstance(self.fn, Loss) else None

    def _weighable(
        self,
        y_true: jax.Array,
        y_pred: jax.Array,
        sample_weight: Numbers | None,
        mask: Numbers | None,
    ) -> tuple[jax.Array, Numbers | None]:
        if isinstance(self.fn, Loss):
            # only the loss knows whether removed samples affect the values of others
            return self.fn._weighable(y_true, y_pred, sample_weight, mask)
        return super()._weighable(y_true, y_pred, sample_weight, mask)


METRICS = (
    named(Sum, "sum"),
    named(Mean, "mean"),
)
