"""`Normalization`: standardizes features by the mean and variance of a data set."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine.migration_hints.dropped import returned
from fkeras.layers.common import authoring as fk
from fkeras.layers.common.arguments import check_representable
from fkeras.nn.numerics.axes import format_shape
from fkeras.nn.numerics.dtypes import wide_dtype
from fkeras.nn.numerics.stable import EPSILON


def standardize(
    x: jax.Array, mean: jax.Array, variance: jax.Array, invert: bool = False
) -> jax.Array:
    """Computes `(x - mean) / sqrt(variance)`, or with `invert` `x * sqrt(variance) + mean`.

    A standard deviation below 1e-7 is replaced by 1e-7, so a constant feature becomes 0.

    Args:
        mean: array that broadcasts against `x`.
        variance: array that broadcasts against `x`.
        invert: whether to undo the normalization.
    """
    # clipping before the root: the derivative of the root is infinite at 0
    stddev = jnp.sqrt(jnp.maximum(variance, EPSILON**2))
    return x * stddev + mean if invert else (x - mean) / stddev


def data_moments(batches: Iterable[Any], axes: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Computes the mean and the biased variance of batches of data, in one pass.

    Args:
        batches: arrays of the same rank, or tuples, whose first entry is used.

    Returns:
        Two float64 arrays with the sizes of the kept axes.
    """
    count, mean, squares, first_sizes = 0, np.zeros(()), np.zeros(()), None
    for batch in batches:
        x = batch[0] if isinstance(batch, tuple) else batch
        if not fk.is_array_like(x):
            raise TypeError(
                f"Normalization: adapt: expected arrays, received {type(x).__name__} in the data. "
                "Pass one array, np.asarray(data), or an iterable of batches."
            )
        x = fk.read_array(x, "Normalization: adapt")
        sizes = _feature_sizes(x.shape, axes)
        if first_sizes is not None and sizes != first_sizes:
            raise ValueError(
                f"Normalization: adapt: expected batches with sizes {first_sizes} on axis "
                f"{tuple(axes)}, as in the first batch, received {format_shape(x.shape)}. Give "
                "every batch the same features."
            )
        first_sizes = sizes
        reduced_axes = tuple(a for a in range(x.ndim) if a not in {b % x.ndim for b in axes})
        batch_count = math.prod(x.shape[a] for a in reduced_axes)
        if batch_count == 0:
            continue
        batch_mean, batch_squares = _sums(x, reduced_axes)
        # Chan's parallel algorithm: combines sums of squares around the means of two parts
        total = count + batch_count
        step = batch_mean - mean
        mean = mean + step * (batch_count / total)
        squares = squares + batch_squares + np.square(step) * (count * batch_count / total)
        count = total
    if count == 0:
        raise ValueError(
            "Normalization: adapt: expected data, received none. Pass an array, or an iterable "
            "with at least one batch; an exhausted generator has no data."
        )
    return mean, squares / count


def _sums(x: fk.Tree, axes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the mean of a batch, and the sum of squared differences from it, in float64."""
    if isinstance(x, jax.Array):  # computes on the array's device, without a copy to the host
        wide = x.astype(wide_dtype(x.dtype))
        mean = jnp.mean(wide, axes, keepdims=True)
        squares = jnp.sum(jnp.square(wide - mean), axes)
        return np.asarray(jnp.squeeze(mean, axes), "float64"), np.asarray(squares, "float64")
    mean = np.mean(x, axes, dtype="float64", keepdims=True)
    return np.squeeze(mean, axes), np.sum(np.square(x - mean), axes)


def _feature_sizes(shape: Sequence[Any], axes: Sequence[int]) -> tuple:
    ndim = len(shape)
    positive_axes = {a % ndim for a in axes if -ndim <= a < ndim}
    if len(positive_axes) != len(axes):
        raise ValueError(
            f"Normalization: expected an input with the axes {tuple(axes)}, each once, received "
            f"{format_shape(shape)}. Use axes from {-ndim} to {ndim - 1}, or axis=None for one "
            "mean over all elements."
        )
    return tuple(shape[a] for a in sorted(positive_axes))


_axes = fk.axes(
    optional=True, hint="For one mean per feature give -1, for one mean over all elements None."
)


def _axis(value: fk.Field) -> tuple[int, ...]:
    axis = () if isinstance(value, list | tuple) and not value else _axes(value)
    return () if axis is None else (axis,) if isinstance(axis, int) else axis


_number = fk.numeric(
    optional=True, hint="Give one number per feature, or let layer.adapt(data) compute them."
)


def _numbers(value: fk.Field) -> Any:
    values = _number(value)
    return None if values is None else np.asarray(getattr(values, "array", values)).tolist()


class Normalization(fk.Layer):
    """Computes `(x - mean) / sqrt(variance)` with the mean and variance of a data set.

    `adapt` computes them and returns a layer with mean and variance in its configuration, so JSON
    contains them. A layer without mean and variance has them as state, where Keras has weights:
    `set_weights` accepts the weights of a Keras layer. Neither training nor inference changes
    them.

    The computation is in float32 even if the compute dtype is half precision.

    Args:
        axis: axis or axes with separate means; None for one mean of all values.
        mean: the mean: a number, or numbers along the last of these axes.
        variance: the variance, with the shape of `mean`.
        invert: whether to compute `x * sqrt(variance) + mean` instead.

    Shapes:
        (b, ..., d) -> (b, ..., d); state, if `mean` is not given: mean and variance with the
        sizes of the axes in `axis`, count ().

    Raises:
        ValueError: if only one of `mean` and `variance` is given, if their shapes differ, if a
            variance is negative, or if a number is infinite in float32.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> data = jnp.array([[1.0, 10.0], [3.0, 30.0]])
        >>> layer = fk.layers.Normalization().adapt(data)
        >>> layer
        Normalization(mean=(2.0, 20.0), variance=(1.0, 100.0))
        >>> layer(data)
        Array([[-1., -1.],
               [ 1.,  1.]], dtype=float32)
    """

    axis: fk.Sizes = fk.option(default=-1, convert=_axis)
    mean: fk.OptionalNumbers = fk.option(default=None, convert=_numbers)
    variance: fk.OptionalNumbers = fk.option(default=None, convert=_numbers)
    invert: bool = fk.option(default=False, convert=fk.boolean)

    supports_masking: ClassVar[bool] = True
    _keras_form: ClassVar[fk.KerasForm] = fk.KerasForm(state_order=("mean", "variance", "count"))
    # half precision would lose small differences of large numbers; forward casts the result
    _autocast: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.mean is None) != (self.variance is None):
            missing = "mean" if self.mean is None else "variance"
            raise ValueError(
                f"{self._where}: expected mean and variance, or neither, received no {missing}. "
                "Give both, or let layer.adapt(data) compute them."
            )
        if self.mean is None:
            return
        mean_shape, variance_shape = np.shape(self.mean), np.shape(self.variance)
        if mean_shape != variance_shape or len(mean_shape) > len(self.axis):
            raise ValueError(
                f"{self._where}: expected mean and variance of one shape with at most "
                f"{len(self.axis)} axes, as axis={self.axis} has, received {mean_shape} and "
                f"{variance_shape}. Give one number, or one number per feature."
            )
        if np.min(self.variance, initial=0) < 0:
            raise ValueError(
                f"{self._where}: variance: expected numbers of 0 or more, received "
                f"{np.min(self.variance)}. The variance is the square of the standard deviation."
            )
        self._check_representable(self.mean, self.variance)

    def _check_representable(self, mean: fk.Leaf, variance: fk.Leaf) -> None:
        wide = wide_dtype(self.policy.compute_dtype)
        check_representable(self._where, wide, mean=mean, variance=variance)

    @fk.hides_internal_frames
    def adapt(self, data: fk.Tree) -> Self:
        """Returns the layer with the mean and variance of `data` as configuration.

        Args:
            data: an array, or an iterable of batches, which is read once; a batch may be a tuple
                such as (x, y), whose first entry is used.

        Raises:
            ValueError: for data without samples, with values that are not finite, or with
                different features in different batches.
            TypeError: if the data are not arrays.
        """
        batches: Iterator[Any]
        if fk.is_array_like(data):
            batches = iter((data,))
        elif isinstance(data, Iterable) and not isinstance(data, str | dict):
            batches = itertools.chain(data)
        else:
            raise TypeError(
                f"{self._where}: adapt: expected an array or an iterable of batches, received "
                f"{type(data).__name__}. Pass the features alone: layer.adapt(x)."
            )
        mean, variance = data_moments(batches, self.axis)
        if not np.isfinite(mean).all() or not np.isfinite(variance).all():
            raise ValueError(
                f"{self._where}: adapt: expected finite numbers, received data with NaN or "
                "infinity. Replace or remove these samples: x[np.isfinite(x).all(axis=-1)]."
            )
        self._check_representable(mean, variance)
        adapted = self.replace(mean=mean.tolist(), variance=variance.tolist())
        return returned(adapted, "Normalization.adapt", "layer = layer.adapt(data)", depth=2)

    @property
    def stateful(self) -> bool:
        return self.mean is None

    def init_state(self, x: fk.SpecLike) -> dict[str, jax.Array]:
        """Returns the initial values of Keras's weights: mean 0, variance 1, count 0."""
        if self.mean is not None:
            return {}
        sizes = _feature_sizes(x.shape, self.axis)
        if None in sizes:
            raise ValueError(
                f"{self._where}: expected an input with known sizes on axis {self.axis}, received "
                f"{x}. Give the features a size, as in fk.Input((None, 8))."
            )
        dtype = self.policy.variable_dtype
        return {
            "mean": jnp.zeros(sizes, dtype),
            "variance": jnp.ones(sizes, dtype),
            "count": jnp.zeros((), "int32"),
        }

    def forward(self, context: fk.Context, x: jax.Array) -> fk.Output:
        _feature_sizes(x.shape, self.axis)
        dtype = self.policy.compute_dtype
        wide = wide_dtype(dtype)
        if self.mean is None:
            mean, variance = context.state["mean"], context.state["variance"]
        else:
            # values from the configuration are compiled in as constants
            mean, variance = np.asarray(self.mean), np.asarray(self.variance)
        mean, variance = (self._aligned(jnp.asarray(v, wide), x) for v in (mean, variance))
        y = standardize(x.astype(wide), mean, variance, self.invert)
        return fk.Output(y.astype(dtype), mask=context.mask)

    def _aligned(self, value: jax.Array, x: jax.Array) -> jax.Array:
        feature_axes = sorted(a % x.ndim for a in self.axis)[len(self.axis) - value.ndim :]
        for size, axis in zip(value.shape, feature_axes, strict=True):
            if size not in (1, x.shape[axis]):
                raise ValueError(
                    f"{self._where}: expected {size} features on axis {axis}, as its mean has, "
                    f"received {format_shape(x.shape)}. Adapt another layer to these data."
                )
        shape = [1] * x.ndim
        for size, axis in zip(value.shape, feature_axes, strict=True):
            shape[axis] = size
        return jnp.reshape(value, shape)
