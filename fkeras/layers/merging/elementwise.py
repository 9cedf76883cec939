"""Layers that merge a list of tensors into one, element by element.

By default a step of the result is valid if the step is valid in every input that carries a mask; an
input without a mask counts as valid everywhere. Keras since 3.4 uses "valid in any input" instead,
so that padding of one branch reaches the result unmasked. `masks="any"` selects Keras's rule: see
the file `masks.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.layers.common import authoring as fk
from fkeras.layers.merging.masks import (
    Masks,
    aligned,
    check_masks,
    merge_masks,
    with_first_valid,
    with_ones,
)
from fkeras.nn.numerics.axes import format_shape


def with_common_dtype(inputs: Sequence[jax.Array]) -> list[jax.Array]:
    """Casts the arrays to one dtype: the first floating dtype, or else NumPy's promoted dtype."""
    # autocast has cast all floats to the compute dtype already, so the first floating dtype serves;
    # jnp's own promotion of int32 with float16 depends on the promotion mode that the user sets
    floating = [x.dtype for x in inputs if jnp.issubdtype(x.dtype, jnp.inexact)]
    dtype = floating[0] if floating else np.result_type(*(x.dtype for x in inputs))
    return [x.astype(dtype) for x in inputs]


def with_common_rank(inputs: Sequence[jax.Array]) -> list[jax.Array]:
    """Inserts axes of size 1 after the batch axis, up to the highest rank among the arrays."""
    # as in Keras: NumPy's broadcasting would insert the axes before the batch axis
    ndim = max(x.ndim for x in inputs)
    return [jnp.reshape(x, (*x.shape[:1], *(1,) * (ndim - x.ndim), *x.shape[1:])) for x in inputs]


def check_list(where: str, inputs: tuple, count: int | None = None) -> list[jax.Array]:
    """Returns the list of tensors that a merge layer was called with.

    Raises:
        ValueError: where the inputs are not one list, or not `count` tensors.
    """
    expected = "a list of tensors" if count is None else f"a list of {count} tensors"
    if len(inputs) != 1 or not isinstance(inputs[0], list | tuple):
        shapes = ", ".join(format_shape(x.shape) for x in jax.tree.leaves(inputs))
        raise ValueError(
            f"{where}: expected {expected}, received {shapes} without a list. Write layer([a, b])."
        )
    tensors = list(inputs[0])
    if not tensors or (count is not None and len(tensors) != count):
        raise ValueError(
            f"{where}: expected {expected}, received {len(tensors)}: "
            f"{describe_inputs(tensors) or 'none'}. "
            f"{'Merge two at a time.' if count else 'Give at least one.'}"
        )
    return tensors


def describe_inputs(inputs: Sequence[jax.Array]) -> str:
    """Formats the position and shape of each input, for messages."""
    return ", ".join(f"input {i}: {format_shape(x.shape)}" for i, x in enumerate(inputs))


def known_sizes(inputs: Sequence[jax.Array], axis: int) -> set[int]:
    """Returns the known sizes of `axis` in the inputs."""
    return {x.shape[axis] for x in inputs if isinstance(x.shape[axis], int)}


def check_broadcast(where: str, inputs: Sequence[jax.Array]) -> None:
    """Checks that the tensors broadcast: equal sizes, or 1, on every axis, at a common rank.

    Raises:
        ValueError: where sizes differ; the message names the first axis that differs.
    """
    padded = with_common_rank(inputs)
    for axis in range(padded[0].ndim):
        sizes = {n for n in known_sizes(padded, axis) if n != 1}
        if len(sizes) > 1:
            raise ValueError(
                f"{where}: expected inputs of equal shape (axes of size 1 are broadcast), received "
                f"{describe_inputs(inputs)}; they differ on axis {axis}. Make their sizes equal, "
                "for example with a Dense layer, or join them with Concatenate."
            )


class Merge(fk.Layer):
    """Merges a list of tensors element by element; the base class of `Add`, `Multiply` and others.

    Args of the family:
        masks: rule for the mask of the result. "all": a step is valid if the step is valid in every
            input that has a mask. "any": a step is valid if the step is valid in some input, and
            the result has no mask if some input has none; `Multiply`, `Maximum` and `Minimum`
            ignore invalid steps of an input. Keras computes "any" since 3.4, so the loader sets
            "any" for Keras's files with masks. Keras has no such argument: Keras computes "any" for
            a `.keras` file of this package, and rejects the JSON of a layer with "any".

    Shapes of the family:
        list of (b, ...) -> (b, ...); axes of size 1 broadcast, and an input with fewer axes gets
        axes of size 1 after the batch axis.

    Raises of the family:
        ValueError: for inputs that are not a list, shapes that do not broadcast, or an unknown
            value of `masks`.
    """

    masks: str = fk.option(default="all", convert=fk.choice("all", "any"), kw_only=True)

    supports_masking: ClassVar[bool] = True

    def _loses_masks(self, masks: Sequence[Any]) -> bool:
        # Keras's rule drops the masks if one input has none; with "any" this layer does the same,
        # so only "all" differs from Keras
        return self.masks == "all" and any(mask is None for mask in masks)

    #: number of tensors that the layer takes; None for one or more
    count: ClassVar[int | None] = None

    def merge(self, inputs: list[jax.Array]) -> jax.Array:
        """Computes the result from arrays of one dtype and rank; subclasses implement `merge`."""
        raise NotImplementedError(
            f"{self._where}: has no merge. Use Add, Multiply, ..., or write `def merge(self, "
            "inputs): ...` in a subclass."
        )

    def counted(self, inputs: list[jax.Array], masks: Masks) -> list[jax.Array]:
        """Prepares the inputs for the rule "any"; subclasses neutralize invalid steps."""
        return inputs

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        # Keras's classes have no argument `masks` and reject the key
        if self.masks == "all":
            del config["masks"]
        return config

    def forward(self, context: fk.Context, *inputs: fk.Tree) -> fk.Output:
        tensors = check_list(self._where, inputs, self.count)
        check_broadcast(self._where, tensors)
        masks = check_masks(self._where, context.mask, len(tensors))
        arrays = with_common_rank(with_common_dtype(tensors))
        if self.masks == "any":
            arrays = self.counted(arrays, aligned(tensors, masks))
        value = self.merge(arrays)
        mask = merge_masks(tensors, masks, self.masks)
        # a mask of an input with an axis of size 1 must cover the broadcast axis of the result
        if mask is not None:
            mask = jnp.broadcast_to(mask, value.shape[: mask.ndim])
        return fk.Output(value, mask=mask)


class Add(Merge):
    """Computes the sum of a list of tensors, element by element.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.Add()([jnp.ones((1, 2)), jnp.ones((1, 2))])
        Array([[2., 2.]], dtype=float32)
    """

    def merge(self, inputs: list[jax.Array]) -> jax.Array:
        return functools.reduce(jnp.add, inputs)


class Subtract(Merge):
    """Computes the first of two tensors minus the second, element by element.

    Shapes:
        list of two (b, ...) -> (b, ...); axes of size 1 broadcast, and an input with fewer axes gets
        axes of size 1 after the batch axis.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.Subtract()([jnp.ones((1, 2)), jnp.ones((1, 2))])
        Array([[0., 0.]], dtype=float32)
    """

    count: ClassVar[int | None] = 2

    def merge(self, inputs: list[jax.Array]) -> jax.Array:
        return jnp.subtract(*inputs)


class Multiply(Merge):
    """Computes the product of a list of tensors, element by element.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.Multiply()([jnp.full((1, 2), 3.0), jnp.full((1, 2), 2.0)])
        Array([[6., 6.]], dtype=float32)
    """

    def counted(self, inputs: list[jax.Array], masks: Masks) -> list[jax.Array]:
        return with_ones(inputs, masks)

    def merge(self, inputs: list[jax.Array]) -> jax.Array:
        return functools.reduce(jnp.multiply, inputs)


class Average(Merge):
    """Computes the mean of a list of tensors, element by element.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.Average()([jnp.ones((1, 2)), jnp.zeros((1, 2))])
        Array([[0.5, 0.5]], dtype=float32)
    """

    def merge(self, inputs: list[jax.Array]) -> jax.Array:
        return functools.reduce(jnp.add, inputs) / len(inputs)


class Maximum(Merge):
    """Computes the largest of a list of tensors, element by element.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.Maximum()([jnp.ones((1, 2)), jnp.zeros((1, 2))])
        Array([[1., 1.]], dtype=float32)
    """

    def counted(self, inputs: list[jax.Array], masks: Masks) -> list[jax.Array]:
        return with_first_valid(inputs, masks)

    def merge(self, inputs: list[jax.Array]) -> jax.Array:
        return functools.reduce(jnp.maximum, inputs)


class Minimum(Merge):
    """Computes the smallest of a list of tensors, element by element.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.Minimum()([jnp.ones((1, 2)), jnp.zeros((1, 2))])
        Array([[0., 0.]], dtype=float32)
    """

    def counted(self, inputs: list[jax.Array], masks: Masks) -> list[jax.Array]:
        return with_first_valid(inputs, masks)

    def merge(self, inputs: list[jax.Array]) -> jax.Array:
        return functools.reduce(jnp.minimum, inputs)
