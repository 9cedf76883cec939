"""One-hot vectors of class numbers, and vectors divided by their norms."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fkeras.engine.config.converters import integer, real
from fkeras.engine.messages.errors import describe_value
from fkeras.engine.values.argument_types import Numbers
from fkeras.ops import nn

_COUNT = integer(minimum=1, optional=True)
_AXIS = integer()
_ORDER = real(above=0, infinite=True)


def to_categorical(x: Numbers, num_classes: int | None = None) -> Any:
    """Converts class numbers to one-hot vectors.

    Unlike Keras, the function rejects numbers that are negative or have a fraction: Keras counts
    -1 as the last class and rounds 1.7 down.

    Args:
        x: integers from 0 to `num_classes - 1`, of any shape; a last axis of size 1 is dropped.
        num_classes: number `n` of classes; None for one more than the largest number in `x`.

    Returns:
        An array of shape (..., n): a float32 JAX array if `x` is a JAX array, otherwise a float64
        NumPy array.

    Raises:
        ValueError: for numbers out of range, and without `num_classes` for an empty `x` and for a
            traced `x` (inside `jax.jit`), whose values are unknown.

    Example:
        >>> to_categorical([0, 2], num_classes=3)
        array([[1., 0., 0.],
               [0., 0., 1.]])
    """
    count = _COUNT.check("to_categorical: num_classes", num_classes)
    if isinstance(x, Tracer):
        if count is None:
            raise ValueError(
                "to_categorical: expected num_classes for an array inside of jax.jit, whose "
                "values are unknown, received None. Write to_categorical(x, num_classes=10)."
            )
        return nn.one_hot(_without_unit_axis(x), count)
    ids = _without_unit_axis(_read_class_numbers(x))
    if count is None:
        if ids.size == 0:
            raise ValueError(
                "to_categorical: expected class numbers, received an empty array. Pass "
                "num_classes=..., since an empty array does not show the number of classes."
            )
        count = int(ids.max()) + 1
    if ids.size and (ids.min() < 0 or ids.max() >= count):
        wrong_id = int(ids.min() if ids.min() < 0 else ids.max())
        raise ValueError(
            f"to_categorical: expected class numbers from 0 to {count - 1}, received {wrong_id}. "
            "Increase num_classes, or map the classes to 0, 1, 2, ... with layers.IntegerLookup."
        )
    if isinstance(x, jax.Array):
        return nn.one_hot(_without_unit_axis(x), count)
    vectors = np.zeros((ids.size, count))
    vectors[np.arange(ids.size), ids.ravel()] = 1
    return vectors.reshape(*ids.shape, count)


def _without_unit_axis(ids: np.ndarray | jax.Array) -> Any:
    return ids.reshape(ids.shape[:-1]) if ids.ndim > 1 and ids.shape[-1] == 1 else ids


def _read_class_numbers(x: Numbers) -> np.ndarray:
    try:
        array = np.asarray(x)
    except ValueError:  # nested lists of different lengths: the dtype check below reports them
        array = np.asarray(None)
    if array.size == 0:  # NumPy converts an empty list to floats
        return array.astype("int64")
    if array.dtype.kind not in "biuf":
        raise ValueError(
            f"to_categorical: expected an array of class numbers, received {describe_value(x)}. "
            "Convert names of classes to numbers with layers.StringLookup."
        )
    is_finite = array.dtype.kind != "f" or np.isfinite(array).all()
    if not is_finite or (array != np.floor(array)).any():
        raise ValueError(
            "to_categorical: expected integer class numbers, received fractions, NaN or infinity. "
            "Convert probabilities to class numbers with x.argmax(axis=-1)."
        )
    return array.astype("int64")


def normalize(x: Numbers, axis: int = -1, order: float = 2) -> Any:
    """Divides vectors by their norms; a vector of zeros is unchanged.

    Keras divides the rows of a NumPy array by the norms of its columns for `axis=0`; this function
    divides the columns.

    Args:
        x: an array or a list of numbers.
        axis: the axis along which each vector lies.
        order: the order of the norm: 2 for the Euclidean length, 1 for the sum of magnitudes,
            `numpy.inf` for the largest magnitude.

    Returns:
        An array of the shape of `x`: a JAX array if `x` is a JAX array, otherwise a NumPy array.
        Integers become floats.

    Raises:
        ValueError: for an axis that `x` does not have, and for an order that is not positive.

    Example:
        >>> normalize([[3.0, 4.0], [0.0, 0.0]])
        array([[0.6, 0.8],
               [0. , 0. ]])
    """
    axis = _AXIS.check("normalize: axis", axis)
    order = _ORDER.check("normalize: order", order)
    array = x if isinstance(x, jax.Array) else _read_numbers(x)
    if not -array.ndim <= axis < array.ndim:
        raise ValueError(
            f"normalize: expected an axis of an array of shape {array.shape}, received {axis}. "
            "The last axis is -1."
        )
    # `nn.normalize` has a finite derivative at zero vectors, but takes only integer orders
    if isinstance(array, jax.Array) and order.is_integer():
        return nn.normalize(array, axis=axis, order=int(order))
    xp = jnp if isinstance(array, jax.Array) else np
    norm = xp.linalg.norm(array, order, axis, keepdims=True)
    return array / xp.where(norm == 0, xp.ones_like(norm), norm)


def _read_numbers(x: Numbers) -> np.ndarray:
    try:
        array = np.asarray(x)
    except ValueError:  # nested lists of different lengths: the dtype check below reports them
        array = np.asarray(None)
    if array.dtype.kind not in "biufc":
        raise ValueError(
            f"normalize: expected an array of numbers, received {describe_value(x)}. Pass "
            "rows of equal length."
        )
    return array
