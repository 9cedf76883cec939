"""Reshaping, reordering, repeating and padding arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine.call.node import TensorLike
from fkeras.engine.symbolic.define import few, op, to_array
from fkeras.engine.values.argument_types import Axes, DTypeLike, Integer, Numbers, Shape
from fkeras.nn.numerics.axes import format_shape

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

#: padding: one number or one pair for all axes, or a pair for each axis
Widths: TypeAlias = int | Sequence[int] | Sequence[Sequence[int]] | np.ndarray

# modes of `pad` that JAX implements as a loop over copies of the array
_COPIES = ("reflect", "symmetric", "wrap")


@op
def broadcast_to(x: TensorLike, shape: Sequence[int]) -> jax.Array:
    """Broadcasts x to a shape.

    Args:
        shape: the shape of the result.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.broadcast_to([1, 2], (2, 2)).tolist()
        [[1, 2], [1, 2]]
    """
    return jnp.broadcast_to(to_array(x), tuple(shape))


@op
def expand_dims(x: TensorLike, axis: int | Sequence[int]) -> jax.Array:
    """Inserts axes of size 1.

    Args:
        axis: position of the new axis in the result, or several positions.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.expand_dims([1, 2], -1).tolist()
        [[1], [2]]
    """
    return jnp.expand_dims(to_array(x), axis)


@op
def squeeze(x: TensorLike, axis: Axes = None) -> jax.Array:
    """Removes axes of size 1.

    Args:
        axis: one axis or several; None for all axes of size 1. In a model with unknown sizes, name the axes: as in
            Keras, None keeps an unknown size in the symbolic shape, and removes the axis of an array of size 1.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.squeeze([[1], [2]], axis=-1))
        [1 2]
    """
    return jnp.squeeze(to_array(x), axis=axis)


@op
def reshape(x: TensorLike, newshape: Shape) -> jax.Array:
    """Returns x in another shape; the order of the elements is unchanged.

    Args:
        newshape: the new shape; one size may be -1, which is then inferred.

    Raises:
        ValueError: for a size below -1, several sizes of -1, and another number of elements.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.reshape([1, 2, 3, 4], (2, -1)).tolist()
        [[1, 2], [3, 4]]
    """
    if isinstance(newshape, np.ndarray | jax.Array):
        newshape = newshape.tolist()
    sizes = newshape if isinstance(newshape, list | tuple) else (newshape,)
    integers = [int(size) for size in sizes if isinstance(size, int | np.integer)]
    known, inferred = [n for n in integers if n != -1], integers.count(-1)
    # JAX infers a size for every negative number
    if any(n < -1 for n in known) or inferred > 1 or (inferred and 0 in known):
        raise ValueError(
            "reshape: expected sizes of at least 0, at most one of them -1 and then no other 0, received "
            f"{newshape}."
        )
    array = to_array(x)
    try:
        return jnp.reshape(array, newshape)
    except (TypeError, ValueError) as error:
        # of JAX, of NumPy, and of older releases of JAX for unknown sizes
        if not any(part in str(error) for part in ("cannot reshape", "total size must be")):
            raise
        amount = f"a multiple of {math.prod(known)}" if inferred else str(math.prod(known))
        shape = np.shape(array)
        raise ValueError(
            f"reshape: expected {amount} elements, for the shape {format_shape(sizes)}, received "
            f"{format_shape(shape)} with {math.prod(shape)}. Change newshape, or use -1 for one size that "
            "varies."
        ) from None


@op
def ravel(x: TensorLike) -> jax.Array:
    """Returns x flattened to a vector.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.ravel([[1, 2], [3, 4]]))
        [1 2 3 4]
    """
    return jnp.ravel(to_array(x))


@op
def transpose(x: TensorLike, axes: Sequence[int] | None = None) -> jax.Array:
    """Permutes the axes of x.

    Args:
        axes: the axis of x for each axis of the result; None for the reverse order.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.transpose([[1, 2], [3, 4]]).tolist()
        [[1, 3], [2, 4]]
    """
    return jnp.transpose(to_array(x), axes=axes)


@op
def swapaxes(x: TensorLike, axis1: int, axis2: int) -> jax.Array:
    """Swaps two axes of x.

    Args:
        axis1: the first axis.
        axis2: the second axis.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.swapaxes([[1, 2], [3, 4]], 0, 1).tolist()
        [[1, 3], [2, 4]]
    """
    return jnp.swapaxes(to_array(x), axis1, axis2)


@op
def moveaxis(
    x: TensorLike, source: int | Sequence[int], destination: int | Sequence[int]
) -> jax.Array:
    """Moves axes to other positions; the other axes keep their order.

    Args:
        source: one axis or several.
        destination: position of each axis in the result.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.moveaxis(fk.ops.ones((2, 3, 4)), 0, -1).shape
        (3, 4, 2)
    """
    return jnp.moveaxis(to_array(x), source, destination)


@op
def flip(x: TensorLike, axis: Axes = None) -> jax.Array:
    """Reverses the order of the elements along axes.

    Args:
        axis: one axis or several; None for all axes.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.flip([1, 2, 3]))
        [3 2 1]
    """
    return jnp.flip(to_array(x), axis=axis)


@op
def fliplr(x: TensorLike) -> jax.Array:
    """Reverses the order of the elements along axis 1.

    Args:
        x: array of at least two axes.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.fliplr([[1, 2], [3, 4]]).tolist()
        [[2, 1], [4, 3]]
    """
    return jnp.fliplr(to_array(x))


@op
def flipud(x: TensorLike) -> jax.Array:
    """Reverses the order of the elements along axis 0.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.flipud([[1, 2], [3, 4]]).tolist()
        [[3, 4], [1, 2]]
    """
    return jnp.flipud(to_array(x))


@op
def rot90(array: TensorLike, k: int = 1, axes: Sequence[int] = (0, 1)) -> jax.Array:
    """Rotates an array by k times 90 degrees, from the first axis towards the second.

    Args:
        array: array of at least two axes.
        k: number of rotations; negative numbers rotate in the opposite direction.
        axes: the two axes of the plane of rotation.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.rot90([[1, 2], [3, 4]]).tolist()
        [[2, 4], [1, 3]]
    """
    first, second = axes
    return jnp.rot90(to_array(array), k=k, axes=(first, second))


@op
def roll(x: TensorLike, shift: int | Sequence[int], axis: Axes = None) -> jax.Array:
    """Shifts the elements of x along axes; elements beyond the end reappear at the start.

    Args:
        shift: number of positions, or one number per axis.
        axis: one axis or several; None for the flattened array.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.roll([1, 2, 3], 1))
        [3 1 2]
    """
    return jnp.roll(to_array(x), shift, axis=axis)


@op
def repeat(x: TensorLike, repeats: Integer | Numbers, axis: int | None = None) -> jax.Array:
    """Repeats each element of x along an axis, or of the flattened array for None.

    Args:
        repeats: number of repetitions, or one number per element of the axis.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.repeat([1, 2], 2))
        [1 1 2 2]
    """
    return jnp.repeat(to_array(x), _counts(repeats), axis=axis)


def _counts(repeats: Integer | Numbers) -> jax.Array | np.ndarray:
    # `jnp.repeat` rejects lists of counts, and traced counts under jit
    return np.asarray(repeats) if isinstance(repeats, int | list | tuple) else to_array(repeats)


@op
def tile(x: TensorLike, repeats: Shape) -> jax.Array:
    """Repeats x as a whole along each axis.

    Args:
        repeats: number of repetitions, or one number per axis.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.tile([1, 2], 2))
        [1 2 1 2]
    """
    return jnp.tile(to_array(x), repeats)


@op
def pad(
    x: TensorLike,
    pad_width: Widths,
    mode: str = "constant",
    constant_values: TensorLike | None = None,
) -> jax.Array:
    """Pads x along each axis.

    Args:
        pad_width: pairs (before, after) per axis, or one pair or one number for all axes.
        mode: "constant", "reflect", "symmetric", "edge", "wrap", or another mode of jax.numpy.
        constant_values: padding for the mode "constant"; None for 0.

    Raises:
        ValueError: if `constant_values` is given and `mode` is not "constant".

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.pad([1, 2], (1, 2)))
        [0 1 2 0 0]
    """
    # jax.numpy declares fewer forms of the widths than it accepts
    pairs: Any = pad_width
    # `jnp.pad` accepts `constant_values` only with the mode "constant"
    if constant_values is None:
        x = to_array(x)
        if mode in _COPIES:
            widths = np.broadcast_to(np.asarray(pad_width), (x.ndim, 2))
            for size, (before, after) in zip(x.shape, widths.tolist(), strict=True):
                # unknown batch sizes cannot be checked here
                if isinstance(size, int):
                    # a large width over a small axis would unroll into a huge program
                    few(max(before, after) // max(size - 1, 1))
        return jnp.pad(x, pairs, mode=mode)
    if mode != "constant":
        raise ValueError(
            f"pad: expected constant_values with mode='constant' alone, received mode={mode!r}. "
            "Leave one of the two out."
        )
    return jnp.pad(to_array(x), pairs, mode=mode, constant_values=constant_values)


@op
def meshgrid(*x: TensorLike, indexing: str = "xy") -> list[jax.Array]:
    """Returns a list of arrays with the coordinates of a grid.

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
def view(x: TensorLike, dtype: DTypeLike | None = None) -> jax.Array:
    """Reinterprets the bits of x as another dtype.

    Args:
        dtype: the dtype; if the size of an element differs, the size of the last axis changes.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.view(1.0, "int32"))
        1065353216
    """
    return jnp.asarray(x).view(dtype=dtype)
