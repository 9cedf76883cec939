"""`Concatenate`: joins tensors along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from fkeras.engine import Context, Layer, Output, option
from fkeras.layers.merging.elementwise import (
    check_list,
    check_masks,
    describe_inputs,
    known_sizes,
    merge_masks,
    with_common_dtype,
)


def check_concatenate(where: str, inputs: Sequence[jax.Array], axis: int) -> int:
    """Checks that the tensors join along `axis`, and returns it counted from the front.

    Raises:
        ValueError: where they differ in rank, or in size on another axis.
    """
    ndims = {x.ndim for x in inputs}
    if len(ndims) > 1:
        raise ValueError(
            f"{where}: expected inputs with the same number of axes, received "
            f"{describe_inputs(inputs)}. Add the missing axis with Reshape or RepeatVector."
        )
    ndim = inputs[0].ndim
    if not -ndim <= axis < ndim:
        raise ValueError(
            f"{where}: expected inputs with an axis {axis}, received {describe_inputs(inputs)}. Use an "
            f"axis from {-ndim} to {ndim - 1}."
        )
    front = axis % ndim
    for other in range(ndim):
        if other != front and len(known_sizes(inputs, other)) > 1:
            raise ValueError(
                f"{where}: expected inputs of equal size on every axis but {axis}, received "
                f"{describe_inputs(inputs)}; they differ on axis {other}. Concatenate on axis {other}, "
                "or bring that axis to one size first."
            )
    return front


def concatenate_masks(
    inputs: Sequence[jax.Array], masks: Sequence[jax.Array | None], axis: int
) -> jax.Array | None:
    """The mask of tensors that were joined along `axis` (counted from the front).

    Along an axis that the masks have, they are joined like the tensors; along another one, a step
    is valid where every input is (in Keras 3: where any is).
    """
    rank = max((m.ndim for m in masks if m is not None), default=0)
    if axis >= rank:
        return merge_masks(inputs, masks)
    filled = [_fill_mask(x, m, rank) for x, m in zip(inputs, masks, strict=True)]
    return jnp.concatenate(filled, axis=axis)


def _fill_mask(x: jax.Array, mask: jax.Array | None, rank: int) -> jax.Array:
    """A mask of the first `rank` axes of `x`."""
    if mask is None:
        return jnp.ones(x.shape[:rank], bool)
    mask = jnp.reshape(mask, (*mask.shape, *(1,) * (rank - mask.ndim)))
    return jnp.broadcast_to(mask, x.shape[:rank])


class Concatenate(Layer):
    """Joins a list of tensors along an axis.

    Args:
        axis: the axis to join along.

    Shapes:
        list of (b, ..., c) -> (b, ..., sum of c) for the last axis.

    Raises:
        ValueError: for anything but a list, or where another axis differs in size.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.Concatenate()([jnp.array([[1.0, 2.0]]), jnp.array([[3.0]])])
        Array([[1., 2., 3.]], dtype=float32)
    """

    axis: int = option(-1, convert=int)

    supports_masking: ClassVar[bool] = True

    def forward(self, context: Context, *inputs: Any) -> Output:
        tensors = check_list(self.where, inputs)
        axis = check_concatenate(self.where, tensors, self.axis)
        value = jnp.concatenate(with_common_dtype(tensors), axis=axis)
        masks = check_masks(self.where, context.mask, len(tensors))
        return Output(value, mask=concatenate_masks(tensors, masks, axis))
