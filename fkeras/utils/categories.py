"""Class vectors from class numbers, and vectors of length 1."""

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
        num_classes: number `n` of classes; None for the largest number in `x`, plus 1.

    Returns:
        An array of shape (..., n): float64 of NumPy, or float32 of JAX if `x` is a JAX array.

    Raises:
        ValueError: for numbers out of range, for an empty `x` without `num_classes`, and for an
            array of unknown values (inside `jax.jit`) without `num_classes`.

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
        return nn.one_hot(_squeezed(x), count)
    ids = _squeezed(_class_numbers(x))
    if count is None:
        if ids.size == 0:
            raise ValueError(
                "to_categorical: expected class numbers, received an empty array. Give "
                "num_classes=..., since no number shows how many classes exist."
            )
        count = int(ids.max()) + 1
    if ids.size and (ids.min() < 0 or ids.max() >= count):
        wrong = int(ids.min() if ids.min() < 0 else ids.max())
        raise ValueError(
            f"to_categorical: expected class numbers from 0 to {count - 1}, received {wrong}. "
            "Raise num_classes, or map the classes to 0, 1, 2, ... with layers.IntegerLookup."
        )
    if isinstance(x, jax.Array):
        return nn.one_hot(_squeezed(x), count)
    vectors = np.zeros((ids.size, count))
    vectors[np.arange(ids.size), ids.ravel()] = 1
    return vectors.reshape(*ids.shape, count)


def _squeezed(ids: Any) -> Any:
    return ids.reshape(ids.shape[:-1]) if ids.ndim > 1 and ids.shape[-1] == 1 else ids


def _class_numbers(x: Any) -> np.ndarray:
    try:
        array = np.asarray(x)
    except ValueError:
        array = np.asarray(None)
    if array.size == 0:  # an empty list is an array of floats
        return array.astype("int64")
    if array.dtype.kind not in "biuf":
        raise ValueError(
            f"to_categorical: expected class numbers of one shape, received {describe_value(x)}. "
            "Names of classes get numbers by layers.StringLookup."
        )
    numbers = array if array.dtype.kind != "f" or np.isfinite(array).all() else None
    if numbers is None or (numbers != np.floor(numbers)).any():
        raise ValueError(
            "to_categorical: expected whole class numbers, received fractions, NaN or infinity. "
            "Probabilities become class numbers by x.argmax(axis=-1)."
        )
    return numbers.astype("int64")


def normalize(x: Numbers, axis: int = -1, order: float = 2) -> Any:
    """Divides vectors by their norms; a vector of zeros is unchanged.

    In a NumPy array Keras divides along the last axis for `axis=0`; here the axis is respected.

    Args:
        x: an array or a list of numbers.
        axis: the axis of the vectors.
        order: the order of the norm: 2 for the Euclidean length, 1 for the sum of magnitudes,
            `numpy.inf` for the largest magnitude.

    Returns:
        An array of the shape of `x`, of NumPy or of JAX as `x`; integers become floats.

    Raises:
        ValueError: for an axis that `x` does not have, and for an order that is not positive.

    Example:
        >>> normalize([[3.0, 4.0], [0.0, 0.0]])
        array([[0.6, 0.8],
               [0. , 0. ]])
    """
    axis = _AXIS.check("normalize: axis", axis)
    order = _ORDER.check("normalize: order", order)
    array = x if isinstance(x, jax.Array) else _numbers(x)
    if not -array.ndim <= axis < array.ndim:
        raise ValueError(
            f"normalize: expected an axis of an array of shape {array.shape}, received {axis}. "
            "The last axis is -1."
        )
    if isinstance(array, jax.Array) and order.is_integer():  # with a derivative at zero
        return nn.normalize(array, axis=axis, order=int(order))
    xp = jnp if isinstance(array, jax.Array) else np
    norm = xp.linalg.norm(array, order, axis, keepdims=True)
    return array / xp.where(norm == 0, xp.ones_like(norm), norm)


def _numbers(x: Any) -> np.ndarray:
    try:
        array = np.asarray(x)
    except ValueError:
        array = np.asarray(None)
    if array.dtype.kind not in "biufc":
        raise ValueError(
            f"normalize: expected numbers of one shape, received {describe_value(x)}. Give an "
            "array of numbers."
        )
    return array
