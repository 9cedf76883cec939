"""`Softmax`: exponentials that sum to 1 over one axis or several, without what a mask leaves out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine import Context, Layer, Output, option
from fkeras.engine.config.converters import axes
from fkeras.engine.values.frozen import is_array
from fkeras.layers.common.arguments import format_shape
from fkeras.layers.common.dtypes import wide_dtype
from fkeras.nn.slopes import divide


def exponentials(
    x: jax.Array, mask: jax.Array | None, axes: Sequence[int]
) -> tuple[jax.Array, jax.Array]:
    """Computes `exp(x)` times a factor of each row, and what to divide by for sums of 1.

    Args:
        x: array of a floating-point dtype.
        mask: True where an entry counts; broadcasts to `x`. None for everywhere.
        axes: the axes of a row.

    Returns:
        The exponentials, 0 where the mask is False, and their sums with axes of size 1; the sum of
        a row that is empty, all masked or all -inf is 1.

    Example:
        >>> import jax.numpy as jnp
        >>> exponentials(jnp.array([[7.0, 7.0]]), None, (1,))
        (Array([[1., 1.]], dtype=float32), Array([[2.]], dtype=float32))
    """
    axes = tuple(axes)
    lowest = float(jnp.finfo(x.dtype).min)
    if mask is not None:
        x = jnp.where(mask, x, jnp.asarray(lowest, x.dtype))
    # half of the lowest number bounds the maximum from below: what is masked stays far under it,
    # and exp is 0 even where all of a row is masked; no -inf comes up that would have no gradient
    highest = jax.lax.stop_gradient(jnp.max(x, axes, keepdims=True, initial=lowest / 2))
    y = jnp.exp(x - highest)
    total = jnp.sum(y, axes, keepdims=True)
    return y, jnp.where(total == 0, jnp.ones_like(total), total)


def masked_softmax(
    x: jax.Array, mask: jax.Array | None = None, axis: int | Sequence[int] = -1
) -> jax.Array:
    """Computes `exp(x) / sum(exp(x))` over `axis`, with 0 where `mask` is False.

    Where nothing of a row is left, all of it is 0, and its gradient too.

    Args:
        x: array of any shape.
        mask: a Boolean array of as many axes that broadcasts to `x`, or None.
        axis: the axis, or the axes that are summed over together.

    Returns:
        An array like `x`; sums are in float32 at least.

    Example:
        >>> import jax.numpy as jnp
        >>> masked_softmax(jnp.zeros((1, 3)), jnp.array([[True, True, False]]))
        Array([[0.5, 0.5, 0. ]], dtype=float32)
    """
    dtype = x.dtype if jnp.issubdtype(x.dtype, jnp.inexact) else jnp.dtype("float32")
    axes = (axis,) if isinstance(axis, int) else axis
    y, total = exponentials(x.astype(wide_dtype(dtype)), mask, axes)
    return divide(y, total).astype(dtype)


class Softmax(Layer):
    """Computes `exp(x) / sum(exp(x))` over `axis`, without the entries that a mask leaves out.

    What is left out is 0, and so is a row of which nothing is left. An array given as `mask`
    broadcasts to the input, its last axes being the last axes of the input. The mask of the steps
    (b, t) that comes with the input of a model belongs to the first axes. The mask goes on with
    the output, unless it has the three or more axes of the input: such a mask says which entries of
    a row count, and not which steps.

    Args:
        axis: the axis, or the axes that are summed over together.

    Call:
        mask: the mask: numbers above 0.5 or True where an entry is kept. It has at most as many
            axes as the input, each of the input's size or 1.

    Shapes:
        (b, ...) -> (b, ...).

    Raises:
        ValueError: for an axis that is no integer, or a mask that does not fit the input.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.Softmax()(jnp.zeros((1, 2)))
        Array([[0.5, 0.5]], dtype=float32)
        >>> fk.layers.Softmax()(jnp.zeros((1, 2)), mask=jnp.array([[True, False]]))
        Array([[1., 0.]], dtype=float32)
    """

    axis: int | tuple[int, ...] = option(default=-1, convert=axes())

    supports_masking: ClassVar[bool] = True
    call_options: ClassVar[tuple[str, ...]] = ("mask",)

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """The softmax of the input, without the entries that `mask` leaves out."""
        return super().__call__(*inputs, **self.complete_options(inputs, options))

    def apply(self, *inputs: Any, **options: Any) -> Output:
        """The `Output` of the layer: the softmax and the mask."""
        return super().apply(*inputs, **self.complete_options(inputs, options))

    def complete_options(self, inputs: tuple, options: dict[str, Any]) -> dict[str, Any]:
        """The options with an array of a mask that lines up with the input's last axes.

        The engine passes masks given by hand and masks of steps in the same way, so the axes of the
        first are completed here.
        """
        mask = options.get("mask")
        x = inputs[0] if len(inputs) == 1 else None
        if not is_array(mask) or not hasattr(x, "shape") or np.ndim(mask) >= len(x.shape):
            return options
        pairs = zip(reversed(mask.shape), reversed(x.shape), strict=False)
        if any(m != 1 and n is not None and m != n for m, n in pairs):
            return options  # a mask of steps, or one that is refused
        shape = (*(1,) * (len(x.shape) - mask.ndim), *mask.shape)
        return {**options, "mask": mask.reshape(shape)}

    def forward(self, context: Context, x: jax.Array) -> Output:
        axes = self.axis if isinstance(self.axis, tuple) else (self.axis,)
        if any(not -x.ndim <= a < x.ndim for a in axes):
            raise ValueError(
                f"{self.where}: expected an input with the axes {axes}, received "
                f"{format_shape(x.shape)}. Use axes from {-x.ndim} to {x.ndim - 1}."
            )
        mask = context.mask
        if mask is None:
            return Output(masked_softmax(x, None, axes))
        goes_on = mask.ndim < x.ndim or mask.ndim < 3
        return Output(masked_softmax(x, self._kept(mask, x), axes), mask=mask if goes_on else None)

    def _kept(self, mask: jax.Array, x: jax.Array) -> jax.Array:
        """The mask as Booleans with all axes of `x`."""
        shape = (*mask.shape, *(1,) * (x.ndim - mask.ndim))
        pairs = [p for p in zip(shape, x.shape, strict=False) if all(map(_known, p))]
        if mask.ndim > x.ndim or any(m not in (1, n) for m, n in pairs):
            raise ValueError(
                f"{self.where}: expected a mask whose axes have the sizes of {format_shape(x.shape)}"
                f" or 1, received {format_shape(mask.shape)}. Give it all axes of the input, such "
                "as mask[:, None, :]."
            )
        if mask.dtype != jnp.bool_:
            mask = mask > jnp.asarray(0.5, mask.dtype) if _floating(mask) else mask > 0
        return jnp.reshape(mask, shape)


def _known(size: Any) -> bool:
    return isinstance(size, int)


def _floating(x: jax.Array) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)
