"""`Concatenate`: joins tensors along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from fkeras.engine import Context, Layer, Output, option
from fkeras.engine.config.converters import choice, integer
from fkeras.engine.config.field_types import Integer
from fkeras.layers.merging.elementwise import (
    check_list,
    describe_inputs,
    known_sizes,
    with_common_dtype,
)
from fkeras.layers.merging.masks import check_masks, concatenate_masks


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


class Concatenate(Layer):
    """Joins a list of tensors along an axis.

    Args:
        axis: the axis to join along.
        masks: where a step of the result is valid, unless steps are what is joined: "all", where
            it is in every input that has a mask; "any", where it is in some input, as in Keras
            since 3.4. More on the two at `Merge`.

    Shapes:
        list of (b, ..., c) -> (b, ..., sum of c) for the last axis.

    Raises:
        ValueError: for anything but a list, where another axis differs in size, or for another
            word as `masks`.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.Concatenate()([jnp.array([[1.0, 2.0]]), jnp.array([[3.0]])])
        Array([[1., 2., 3.]], dtype=float32)
    """

    axis: Integer = option(default=-1, convert=integer())
    masks: str = option(default="all", convert=choice("all", "any"), kw_only=True)

    supports_masking: ClassVar[bool] = True

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        if self.masks == "all":  # Keras has no such argument
            del config["masks"]
        return config

    def forward(self, context: Context, *inputs: Any) -> Output:
        tensors = check_list(self.where, inputs)
        axis = check_concatenate(self.where, tensors, self.axis)
        value = jnp.concatenate(with_common_dtype(tensors), axis=axis)
        masks = check_masks(self.where, context.mask, len(tensors))
        return Output(value, mask=concatenate_masks(tensors, masks, axis, self.masks))
