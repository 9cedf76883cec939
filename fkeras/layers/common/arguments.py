"""Field converters and checks shared by several layer families."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from fkeras.layers.common import authoring as fk
from fkeras.nn.numerics.axes import format_shape

noise_shape = fk.several(
    fk.integer(minimum=1, optional=True),
    "a tuple of positive sizes and None",
    optional=True,
    hint="For the same features at every step of (b, t, d): (None, 1, None).",
)


def drawn_shape(where: str, noise_shape: fk.Tree, shape: fk.Tree) -> tuple:
    """Returns the shape of a draw for an input of `shape`: `noise_shape` with None replaced.

    Raises:
        ValueError: for different numbers of axes; `where` names the layer.
    """
    if noise_shape is None:
        return tuple(shape)
    if len(noise_shape) != len(shape):
        raise ValueError(
            f"{where}: expected an input of {len(noise_shape)} axes, as noise_shape={noise_shape} "
            f"has, received {format_shape(shape)}. Give noise_shape one entry per axis, including "
            "the batch axis."
        )
    return tuple(d if n is None else n for n, d in zip(noise_shape, shape, strict=True))


def check_representable(where: str, dtype: DTypeLike, **arguments: fk.Leaf) -> None:
    """Rejects numbers that are infinite in the dtype of the computation.

    Args:
        arguments: finite numbers by name of the argument, or None.

    Raises:
        ValueError: for a number beyond the largest of `dtype`.
    """
    bound = float(jnp.finfo(dtype).max)
    for name, value in arguments.items():
        if value is not None and np.any(np.abs(np.asarray(value, "float64")) > bound):
            raise ValueError(
                f"{where}: {name}: expected numbers of at most {bound:.3g}, the largest of "
                f"{jnp.dtype(dtype).name}, received {np.abs(value).max():.3g}. Choose another unit for "
                "the data."
            )
