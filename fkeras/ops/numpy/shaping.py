"""Other shapes for the same elements: moved, repeated, padded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from fkeras.engine.symbolic.define import few, op, to_array

__all__ = (
    "broadcast_to",
    "expand_dims",
    "flip",
    "fliplr",
    "flipud",
    "meshgrid",
    "moveaxis",
    "pad",
    "ravel",
    "repeat",
    "reshape",
    "roll",
    "rot90",
    "squeeze",
    "swapaxes",
    "tile",
    "transpose",
    "view",
)

# the modes of `pad` that put copies of an array beside it, one after the other
_COPIES = ("reflect", "symmetric", "wrap")


@op
def broadcast_to(x: Any, shape: Sequence[int]) -> Any:
    """x repeated along axes of size 1 and new first axes.

    Args:
        shape: the shape of the result.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.broadcast_to([1, 2], (2, 2)).tolist()
        [[1, 2], [1, 2]]
    """
    return jnp.broadcast_to(to_array(x), tuple(shape))


@op
def expand_dims(x: Any, axis: Any) -> Any:
    """x with new axes of size 1 at the given places of the result.

    Args:
        axis: the place of the new axis, or several.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.expand_dims([1, 2], -1).tolist()
        [[1], [2]]
    """
    return jnp.expand_dims(to_array(x), axis)


@op
def squeeze(x: Any, axis: Any = None) -> Any:
    """x without the given axes of size 1, without all of them where axis is None.

    Args:
        axis: the axis, or several.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.squeeze([[1], [2]], axis=-1))
        [1 2]
    """
    return jnp.squeeze(to_array(x), axis=axis)


@op
def reshape(x: Any, newshape: Any) -> Any:
    """The elements of x in the same order in another shape, with one size -1 at most.

    Args:
        newshape: the new shape; -1 is the size that is left.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.reshape([1, 2, 3, 4], (2, -1)).tolist()
        [[1, 2], [3, 4]]
    """
    return jnp.reshape(to_array(x), newshape)


@op
def ravel(x: Any) -> Any:
    """The elements of x as a vector.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.ravel([[1, 2], [3, 4]]))
        [1 2 3 4]
    """
    return jnp.ravel(to_array(x))


@op
def transpose(x: Any, axes: Sequence[int] | None = None) -> Any:
    """x with its axes in another order, turned round where it is None.

    Args:
        axes: the axis of x for each axis of the result.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.transpose([[1, 2], [3, 4]]).tolist()
        [[1, 3], [2, 4]]
    """
    return jnp.transpose(to_array(x), axes=axes)


@op
def swapaxes(x: Any, axis1: int, axis2: int) -> Any:
    """x with two axes in each other's place.

    Args:
        axis1: one axis.
        axis2: the other.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.swapaxes([[1, 2], [3, 4]], 0, 1).tolist()
        [[1, 3], [2, 4]]
    """
    return jnp.swapaxes(to_array(x), axis1, axis2)


@op
def moveaxis(x: Any, source: Any, destination: Any) -> Any:
    """x with axes moved to other places; the others keep their order.

    Args:
        source: the axis, or several.
        destination: the place of each in the result.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.moveaxis(fk.ops.ones((2, 3, 4)), 0, -1).shape
        (3, 4, 2)
    """
    return jnp.moveaxis(to_array(x), source, destination)


@op
def flip(x: Any, axis: Any = None) -> Any:
    """x from end to start along the axes, along all where it is None.

    Args:
        axis: the axis, or several.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.flip([1, 2, 3]))
        [3 2 1]
    """
    return jnp.flip(to_array(x), axis=axis)


@op
def fliplr(x: Any) -> Any:
    """x from end to start along axis 1.

    Args:
        x: array of two axes or more.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.fliplr([[1, 2], [3, 4]]).tolist()
        [[2, 1], [4, 3]]
    """
    return jnp.fliplr(to_array(x))


@op
def flipud(x: Any) -> Any:
    """x from end to start along axis 0.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.flipud([[1, 2], [3, 4]]).tolist()
        [[3, 4], [1, 2]]
    """
    return jnp.flipud(to_array(x))


@op
def rot90(array: Any, k: int = 1, axes: Sequence[int] = (0, 1)) -> Any:
    """The array turned k times by 90 degrees, from the first of two axes towards the second.

    Args:
        array: array of two axes or more.
        k: how many times; negative numbers turn back.
        axes: the two axes.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.rot90([[1, 2], [3, 4]]).tolist()
        [[2, 4], [1, 3]]
    """
    first, second = axes
    return jnp.rot90(to_array(array), k=k, axes=(first, second))


@op
def roll(x: Any, shift: Any, axis: Any = None) -> Any:
    """x moved along the axes; what leaves at the end comes in at the start.

    Args:
        shift: how many places, or one number for each axis.
        axis: the axis, or several; None for the flat array.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.roll([1, 2, 3], 1))
        [3 1 2]
    """
    return jnp.roll(to_array(x), shift, axis=axis)


@op
def repeat(x: Any, repeats: Any, axis: int | None = None) -> Any:
    """x with each element as often as told along an axis; flat where the axis is None.

    Args:
        repeats: how often, a number or one for each element of the axis.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.repeat([1, 2], 2))
        [1 1 2 2]
    """
    return jnp.repeat(to_array(x), _counts(repeats), axis=axis)


def _counts(repeats: Any) -> Any:
    return jnp.asarray(repeats) if isinstance(repeats, list | tuple) else repeats


@op
def tile(x: Any, repeats: Any) -> Any:
    """x as a whole as often as told along each axis.

    Args:
        repeats: how often, a number or one for each axis.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.tile([1, 2], 2))
        [1 2 1 2]
    """
    return jnp.tile(to_array(x), repeats)


@op
def pad(x: Any, pad_width: Any, mode: str = "constant", constant_values: Any = None) -> Any:
    """x with more elements before and behind along each axis.

    Args:
        pad_width: pairs (before, behind) for the axes, one pair or one number for all.
        mode: "constant", "reflect", "symmetric", "edge", "wrap" and jax.numpy's others.
        constant_values: what is filled in with mode "constant"; None is 0.

    Raises:
        ValueError: for constant values with another mode.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.pad([1, 2], (1, 2)))
        [0 1 2 0 0]
    """
    if constant_values is None:
        x = to_array(x)
        if mode in _COPIES:
            widths = np.broadcast_to(np.asarray(pad_width), (x.ndim, 2))
            for size, (before, after) in zip(x.shape, widths.tolist(), strict=True):
                if isinstance(size, int):
                    few(max(before, after) // max(size - 1, 1))
        return jnp.pad(x, pad_width, mode=mode)
    if mode != "constant":
        raise ValueError(
            f"pad: expected constant_values with mode='constant' alone, received mode={mode!r}. "
            "Leave one of the two out."
        )
    return jnp.pad(to_array(x), pad_width, mode=mode, constant_values=constant_values)


@op
def meshgrid(*x: Any, indexing: str = "xy") -> Any:
    """A list of arrays that hold the coordinates of a grid of all combinations.

    Args:
        *x: a vector for each axis of the grid.
        indexing: "xy" swaps the first two axes of the grid, "ij" does not.

    Example:
        >>> import fkeras as fk
        >>> [a.tolist() for a in fk.ops.meshgrid([1, 2], [3, 4])]
        [[[1, 2], [1, 2]], [[3, 3], [4, 4]]]
    """
    return list(jnp.meshgrid(*map(jnp.asarray, x), indexing=indexing))


@op
def view(x: Any, dtype: Any = None) -> Any:
    """The bits of x read as another dtype.

    Args:
        dtype: the dtype; where its size differs the last axis grows or shrinks.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.view(1.0, "int32"))
        1065353216
    """
    return jnp.asarray(x).view(dtype=dtype)
