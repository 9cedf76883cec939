"""Arguments of color layers: pixel value ranges, fractions, and mixed values."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.layers.common import authoring as fk
from fkeras.layers.image.common.factors import factor_range

_number = fk.real()


def _ends(value: fk.Field) -> fk.Field:
    ends = [fk.scalar(v) for v in value] if isinstance(value, tuple | list | np.ndarray) else []
    if len(ends) != 2 or not all(map(_number.accepts, ends)) or ends[0] == ends[1]:
        return fk.REJECTED
    return min(ends), max(ends)


value_range = fk.Rule(
    "range",
    "the lowest and the highest pixel value",
    _ends,
    limits=(_number,),
    hint="Give (0, 255) for bytes, or (0, 1) for images divided by 255.",
)


_one, _two = factor_range(0, 1), factor_range(-1, 1)


def share_range(value: fk.Field) -> tuple[float, float]:
    """Converts to (lower, upper); one number f from 0 to 1 means (0, f).

    Two numbers may be negative: Keras writes (-f, f) for a single f, contrary to its documentation.
    """
    return (_two if isinstance(value, tuple | list | np.ndarray) else _one)(value)


def mixed(
    where: str, name: str, values: jax.Array, order: jax.Array, weight: jax.Array, axis: int = -1
) -> jax.Array:
    """Computes `weight * values + (1 - weight) * values[order]` for each entry of a batch.

    Args:
        values: array of shape (b, ...): floating amounts, or integers along an axis of several
            classes, which are cast to float32.
        order: integers (b,).
        weight: array of shape (b,), or a scalar.

    Raises:
        ValueError: for integers that are class ids, because a mean of two ids is a third class.
    """
    if not jnp.issubdtype(values.dtype, jnp.floating):
        check_amounts(where, name, values, axis)
        values = values.astype("float32")
    weight = jnp.reshape(weight, (-1,) + (1,) * (values.ndim - 1)).astype(values.dtype)
    return weight * values + (1 - weight) * jnp.take(values, order, axis=0)


def check_amounts(where: str, name: str, values: jax.Array, axis: int = -1) -> None:
    """Checks that values can be averaged, unlike class ids."""
    # integers with several entries on the class axis are one-hot or counts, not ids
    ids = jnp.issubdtype(values.dtype, jnp.integer)
    if ids and (values.ndim == 1 or values.shape[axis] == 1):
        raise ValueError(
            f"{where}: expected {name!r} that can be averaged, received {values.dtype} of shape "
            f"{values.shape}. The mean of two class ids is the id of another class: give one-hot "
            "vectors, `jax.nn.one_hot(ids, classes)`, or floats for quantities."
        )
