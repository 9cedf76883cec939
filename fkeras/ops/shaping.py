"""Other shapes for the same elements: joined, split, moved, repeated, padded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from fkeras.ops._define import op, to_array

__all__ = (
    "append",
    "array_split",
    "broadcast_to",
    "concatenate",
    "dsplit",
    "dstack",
    "expand_dims",
    "flip",
    "fliplr",
    "flipud",
    "hsplit",
    "hstack",
    "meshgrid",
    "moveaxis",
    "pad",
    "ravel",
    "repeat",
    "reshape",
    "roll",
    "rot90",
    "split",
    "squeeze",
    "stack",
    "swapaxes",
    "tile",
    "transpose",
    "view",
    "vsplit",
    "vstack",
)


@op
def append(x1: Any, x2: Any, axis: int | None = None) -> Any:
    """x1 and then x2 along an axis; both flat where it is None."""
    return jnp.append(to_array(x1), to_array(x2), axis=axis)


@op
def concatenate(xs: Sequence[Any], axis: int = 0) -> Any:
    """The arrays one after the other along an axis.

    Example:
        >>> import fkeras as fk
        >>> x = fk.Input((3,))
        >>> fk.ops.concatenate([x, x], axis=-1).shape
        (None, 6)
    """
    return jnp.concatenate([jnp.asarray(x) for x in xs], axis=axis)


@op
def stack(x: Sequence[Any], axis: int = 0) -> Any:
    """The arrays along a new axis."""
    return jnp.stack([jnp.asarray(part) for part in x], axis=axis)


@op
def hstack(xs: Sequence[Any]) -> Any:
    """The arrays one after the other along axis 1, vectors along axis 0."""
    return jnp.hstack([jnp.asarray(x) for x in xs])


@op
def vstack(xs: Sequence[Any]) -> Any:
    """The arrays one below the other along axis 0, vectors as rows."""
    return jnp.vstack([jnp.asarray(x) for x in xs])


@op
def dstack(xs: Sequence[Any]) -> Any:
    """The arrays one behind the other along axis 2."""
    return jnp.dstack([jnp.asarray(x) for x in xs])


def _sections(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@op
def split(x: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    """A list of equal parts of x along an axis, or of the parts between indices.

    Example:
        >>> import fkeras as fk
        >>> [part.tolist() for part in fk.ops.split([1, 2, 3, 4], [1, 3])]
        [[1], [2, 3], [4]]
    """
    return list(jnp.split(to_array(x), _sections(indices_or_sections), axis=axis))


@op
def array_split(x: Any, indices_or_sections: int, axis: int = 0) -> Any:
    """A list of parts of x along an axis whose sizes differ by one at most."""
    return list(jnp.array_split(to_array(x), indices_or_sections, axis=axis))


@op
def hsplit(x: Any, indices_or_sections: Any) -> Any:
    """A list of parts of x along axis 1, of a vector along axis 0; see `split`."""
    return list(jnp.hsplit(to_array(x), _sections(indices_or_sections)))


@op
def vsplit(x: Any, indices_or_sections: Any) -> Any:
    """A list of parts of x along axis 0; see `split`."""
    return list(jnp.vsplit(to_array(x), _sections(indices_or_sections)))


@op
def dsplit(x: Any, indices_or_sections: Any) -> Any:
    """A list of parts of x along axis 2; see `split`."""
    return list(jnp.dsplit(to_array(x), _sections(indices_or_sections)))


@op
def broadcast_to(x: Any, shape: Sequence[int]) -> Any:
    """x repeated along axes of size 1 and new first axes."""
    return jnp.broadcast_to(to_array(x), tuple(shape))


@op
def expand_dims(x: Any, axis: Any) -> Any:
    """x with new axes of size 1 at the given places of the result."""
    return jnp.expand_dims(to_array(x), axis)


@op
def squeeze(x: Any, axis: Any = None) -> Any:
    """x without the given axes of size 1, without all of them where axis is None."""
    return jnp.squeeze(to_array(x), axis=axis)


@op
def reshape(x: Any, newshape: Any) -> Any:
    """The elements of x in the same order in another shape, with one size -1 at most."""
    return jnp.reshape(to_array(x), newshape)


@op
def ravel(x: Any) -> Any:
    """The elements of x as a vector."""
    return jnp.ravel(to_array(x))


@op
def transpose(x: Any, axes: Sequence[int] | None = None) -> Any:
    """x with its axes in another order, turned round where it is None."""
    return jnp.transpose(to_array(x), axes=axes)


@op
def swapaxes(x: Any, axis1: int, axis2: int) -> Any:
    """x with two axes in each other's place."""
    return jnp.swapaxes(to_array(x), axis1, axis2)


@op
def moveaxis(x: Any, source: Any, destination: Any) -> Any:
    """x with axes moved to other places; the others keep their order."""
    return jnp.moveaxis(to_array(x), source, destination)


@op
def flip(x: Any, axis: Any = None) -> Any:
    """x from end to start along the axes, along all where it is None."""
    return jnp.flip(to_array(x), axis=axis)


@op
def fliplr(x: Any) -> Any:
    """x from end to start along axis 1."""
    return jnp.fliplr(to_array(x))


@op
def flipud(x: Any) -> Any:
    """x from end to start along axis 0."""
    return jnp.flipud(to_array(x))


@op
def rot90(array: Any, k: int = 1, axes: Sequence[int] = (0, 1)) -> Any:
    """The array turned k times by 90 degrees, from the first of two axes towards the second."""
    return jnp.rot90(to_array(array), k=k, axes=tuple(axes))


@op
def roll(x: Any, shift: Any, axis: Any = None) -> Any:
    """x moved along the axes; what leaves at the end comes in at the start."""
    return jnp.roll(to_array(x), shift, axis=axis)


@op
def repeat(x: Any, repeats: Any, axis: int | None = None) -> Any:
    """x with each element as often as told along an axis; flat where the axis is None."""
    return jnp.repeat(to_array(x), _counts(repeats), axis=axis)


def _counts(repeats: Any) -> Any:
    return jnp.asarray(repeats) if isinstance(repeats, list | tuple) else repeats


@op
def tile(x: Any, repeats: Any) -> Any:
    """x as a whole as often as told along each axis."""
    return jnp.tile(to_array(x), repeats)


@op
def pad(x: Any, pad_width: Any, mode: str = "constant", constant_values: Any = None) -> Any:
    """x with more elements before and behind along each axis.

    Args:
        x: an array.
        pad_width: pairs (before, behind) for the axes, one pair or one number for all.
        mode: "constant", "reflect", "symmetric", "edge", "wrap" and jax.numpy's others.
        constant_values: what is filled in with mode "constant"; None is 0.

    Raises:
        ValueError: for constant values with another mode.
    """
    if constant_values is None:
        return jnp.pad(to_array(x), pad_width, mode=mode)
    if mode != "constant":
        raise ValueError(
            f"pad: expected constant_values with mode='constant' alone, received mode={mode!r}. "
            "Leave one of the two out."
        )
    return jnp.pad(to_array(x), pad_width, mode=mode, constant_values=constant_values)


@op
def meshgrid(*x: Any, indexing: str = "xy") -> Any:
    """A list of arrays that hold the coordinates of a grid of all combinations."""
    return list(jnp.meshgrid(*map(jnp.asarray, x), indexing=indexing))


@op
def view(x: Any, dtype: Any = None) -> Any:
    """The bits of x read as another dtype."""
    return jnp.asarray(x).view(dtype=dtype)
