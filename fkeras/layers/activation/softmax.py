"""`Softmax`: softmax over one or several axes, with an optional mask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.layers.common import authoring as fk
from fkeras.nn.numerics.axes import format_shape
from fkeras.nn.softmax import masked_softmax


class Softmax(fk.Layer):
    """Computes `exp(x) / sum(exp(x))` over `axis`, without masked entries.

    Masked entries give 0; a row whose entries are all masked gives 0. An array passed as `mask`
    broadcasts to the input like in NumPy: its last axes are the last axes of the input. The axes of
    a time step mask (b, t) that the input carries are the first axes of the input.

    The output carries the mask, except a mask with all axes of an input of three or more axes: such
    a mask selects entries of a row, not time steps.

    Args:
        axis: axis, or axes, over which the result sums to 1.

    Call:
        mask: True, or a number above 0.5, where an entry is kept. The mask has at most as many axes
            as the input, each of the input's size or of size 1.

    Shapes:
        (b, ...) -> (b, ...).

    Raises:
        ValueError: for an axis that is not an integer, or a mask whose shape does not match the
            input.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.Softmax()(jnp.zeros((1, 2)))
        Array([[0.5, 0.5]], dtype=float32)
        >>> fk.layers.Softmax()(jnp.zeros((1, 2)), mask=jnp.array([[True, False]]))
        Array([[1., 0.]], dtype=float32)
    """

    axis: fk.Axes = fk.option(default=-1, convert=fk.axes())

    supports_masking: ClassVar[bool] = True
    _keras_form: ClassVar[fk.KerasForm] = fk.KerasForm(option_names=("mask",))

    if not TYPE_CHECKING:  # type checkers use the signatures of `Layer`

        def __call__(self, *inputs: fk.Tree, **options: fk.Option) -> Any:
            """Computes the softmax of the input, without the entries that `mask` excludes."""
            return super().__call__(*inputs, **self._complete_options(inputs, options))

        def apply(self, *inputs: fk.Tree, **options: fk.Option) -> fk.Output:
            """Returns the `Output` of the layer: the softmax and the mask."""
            return super().apply(*inputs, **self._complete_options(inputs, options))

    def _complete_options(self, inputs: tuple, options: dict[str, Any]) -> dict[str, Any]:
        """Returns the options of a call, with the axes of a mask array completed at the front.

        The engine passes explicit masks and time step masks in the same way. `forward` aligns a
        mask with the first axes of the input, so an explicit mask gets leading axes of size 1 here.
        """
        mask = options.get("mask")
        x = inputs[0] if len(inputs) == 1 else None
        if (
            mask is None
            or not fk.is_array(mask)
            or x is None
            or not hasattr(x, "shape")
            or np.ndim(mask) >= len(x.shape)
        ):
            return options
        pairs = zip(reversed(mask.shape), reversed(x.shape), strict=False)
        if any(m != 1 and n is not None and m != n for m, n in pairs):
            return options  # a time step mask, or a mask that `forward` rejects
        shape = (*(1,) * (len(x.shape) - mask.ndim), *mask.shape)
        return {**options, "mask": mask.reshape(shape)}

    def forward(self, context: fk.Context, x: jax.Array) -> fk.Output:
        axes = self.axis if isinstance(self.axis, tuple) else (self.axis,)
        if any(not -x.ndim <= a < x.ndim for a in axes):
            raise ValueError(
                f"{self._where}: expected an input with the axes {axes}, received "
                f"{format_shape(x.shape)}. Use axes from {-x.ndim} to {x.ndim - 1}."
            )
        mask = context.mask
        if mask is None:
            return fk.Output(masked_softmax(x, None, axes))
        # a mask of all axes (an attention mask) is not a time step mask for later layers
        is_step_mask = mask.ndim < x.ndim or mask.ndim < 3
        return fk.Output(
            masked_softmax(x, self._checked_mask(mask, x), axes),
            mask=mask if is_step_mask else None,
        )

    def _checked_mask(self, mask: jax.Array, x: jax.Array) -> jax.Array:
        """Returns the mask as Booleans, with trailing axes of size 1 up to the rank of `x`."""
        shape = (*mask.shape, *(1,) * (x.ndim - mask.ndim))
        sizes = zip(shape, x.shape, strict=False)
        static = [(m, n) for m, n in sizes if isinstance(m, int) and isinstance(n, int)]
        if mask.ndim > x.ndim or any(m not in (1, n) for m, n in static):
            raise ValueError(
                f"{self._where}: expected a mask whose axes have the sizes of {format_shape(x.shape)}"
                f" or 1, received {format_shape(mask.shape)}. Give it all axes of the input, such "
                "as mask[:, None, :]."
            )
        # autocast turns a float mask into the compute dtype; 0.5 is exact in every float dtype
        if mask.dtype != jnp.bool_:
            mask = mask > jnp.asarray(0.5, mask.dtype) if _floating(mask) else mask > 0
        return jnp.reshape(mask, shape)


def _floating(x: jax.Array) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)
