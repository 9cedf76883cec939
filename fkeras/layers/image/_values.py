"""Arguments of layers of colours: scales of pixels, shares, and what may be mixed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.layers.image._factors import factor_range


def value_range(argument: str) -> Callable[[Any], tuple[float, float]]:
    """A converter to (lowest, highest) value of a pixel.

    Example:
        >>> value_range("AutoContrast: value_range")([0, 1])
        (0, 1)
    """

    def convert(value: Any) -> tuple[float, float]:
        ends = tuple(value) if isinstance(value, tuple | list | np.ndarray) else ()
        numbers = all(isinstance(v, int | float | np.number) for v in ends)
        if len(ends) != 2 or not numbers or ends[0] == ends[1]:
            raise ValueError(
                f"{argument}: expected the lowest and the highest value of a pixel, received "
                f"{value!r}. Give (0, 255) for bytes, or (0, 1) for images that were divided "
                "by 255."
            )
        return min(ends), max(ends)

    return convert


def share_range(argument: str) -> Callable[[Any], tuple[float, float]]:
    """A converter to (lower, upper): one number f from 0 to 1 stands for (0, f).

    Two numbers may be negative, as those are that Keras writes for one: its code takes f for
    (-f, f), against its documentation.

    Example:
        >>> share_range("RandomSaturation: factor")(0.5)
        (0, 0.5)
        >>> share_range("RandomSaturation: factor")([-0.5, 0.5])
        (-0.5, 0.5)
    """
    one = factor_range(argument, 0, 1)
    two = factor_range(argument, -1, 1)
    return lambda value: (two if isinstance(value, tuple | list | np.ndarray) else one)(value)


def mixed(
    where: str, name: str, values: jax.Array, order: jax.Array, weight: jax.Array, axis: int = -1
) -> jax.Array:
    """`weight * values + (1 - weight) * values[order]`, for each entry of a batch.

    Args:
        where: the layer, for the message.
        name: what is mixed, for the message.
        values: array of shape (b, ...). Amounts are floating; integers along an axis of several
            classes are counted as such.
        order: integers (b,).
        weight: array of shape (b,), or a scalar.
        axis: the axis of classes.

    Raises:
        ValueError: for integers that are ids of classes: between two ids lies another class.

    Example:
        >>> import jax.numpy as jnp
        >>> labels = jnp.array([[1.0, 0.0], [0.0, 1.0]])
        >>> mixed("MixUp", "labels", labels, jnp.array([1, 0]), jnp.array([0.75, 0.5]))
        Array([[0.75, 0.25],
               [0.5 , 0.5 ]], dtype=float32)
    """
    if not jnp.issubdtype(values.dtype, jnp.floating):
        check_amounts(where, name, values, axis)
        values = values.astype("float32")
    weight = jnp.reshape(weight, (-1,) + (1,) * (values.ndim - 1)).astype(values.dtype)
    return weight * values + (1 - weight) * jnp.take(values, order, axis=0)


def check_amounts(where: str, name: str, values: jax.Array, axis: int = -1) -> None:
    """Checks that values can be added, which ids of classes cannot."""
    ids = jnp.issubdtype(values.dtype, jnp.integer)
    if ids and (values.ndim == 1 or values.shape[axis] == 1):
        raise ValueError(
            f"{where}: expected {name!r} that can be mixed, received {values.dtype} of shape "
            f"{values.shape}. Between two ids of classes lies another class: give one-hot vectors, "
            "`jax.nn.one_hot(ids, classes)`, or floating numbers where they are amounts."
        )
