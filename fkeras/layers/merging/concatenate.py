"""`Concatenate`: joins tensors along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk
from fkeras.layers.merging.elementwise import (
    check_list,
    describe_inputs,
    known_sizes,
    with_common_dtype,
)
from fkeras.layers.merging.masks import check_masks, concatenate_masks


def check_concatenate(where: str, inputs: Sequence[jax.Array], axis: int) -> int:
    """Checks that tensors can be concatenated along `axis`; returns the axis as a positive index.

    Raises:
        ValueError: where the tensors differ in rank, or in the size of another axis.
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
    # unknown and symbolic sizes pass: `known_sizes` returns integers only
    for other in range(ndim):
        if other != front and len(known_sizes(inputs, other)) > 1:
            raise ValueError(
                f"{where}: expected inputs of equal size on every axis but {axis}, received "
                f"{describe_inputs(inputs)}; they differ on axis {other}. Concatenate on axis "
                f"{other}, or make its sizes equal first."
            )
    return front


class Concatenate(fk.Layer):
    """Concatenates a list of tensors along an axis.

    Args:
        axis: axis of the concatenation.
        masks: rule for the mask of the result, see `Add`. "all": a step is valid if the step is
            valid in every input that has a mask. "any": a step is valid if the step is valid in
            some input, as in Keras since 3.4. Along the time axis, masks are concatenated instead.

    Shapes:
        list of (b, ..., c) -> (b, ..., sum of c) for the last axis.

    Raises:
        ValueError: for inputs that are not a list, inputs that differ in the size of another axis,
            or an unknown value of `masks`.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.Concatenate()([jnp.array([[1.0, 2.0]]), jnp.array([[3.0]])])
        Array([[1., 2., 3.]], dtype=float32)
    """

    axis: fk.Integer = fk.option(default=-1, convert=fk.integer())
    masks: str = fk.option(default="all", convert=fk.choice("all", "any"), kw_only=True)

    supports_masking: ClassVar[bool] = True

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        # Keras's class has no argument `masks` and rejects the key
        if self.masks == "all":
            del config["masks"]
        return config

    def forward(self, context: fk.Context, *inputs: fk.Tree) -> fk.Output:
        tensors = check_list(self._where, inputs)
        axis = check_concatenate(self._where, tensors, self.axis)
        value = jnp.concatenate(with_common_dtype(tensors), axis=axis)
        masks = check_masks(self._where, context.mask, len(tensors))
        return fk.Output(value, mask=concatenate_masks(tensors, masks, axis, self.masks))
