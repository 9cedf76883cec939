"""`Dot`: the dot product of two tensors over one axis of each, sample by sample."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk
from fkeras.layers.merging.elementwise import check_list, describe_inputs, with_common_dtype
from fkeras.nn.numerics.dtypes import wide_dtype
from fkeras.nn.numerics.stable import unit_vectors


def l2_normalize(x: jax.Array, axis: int) -> jax.Array:
    """Divides by the Euclidean norm along `axis`; the divisor is at least 1e-7."""
    # float16 cannot hold the square of epsilon, 1e-14
    normalized = unit_vectors(x.astype(wide_dtype(x.dtype)), axis)
    return normalized.astype(x.dtype) if jnp.issubdtype(x.dtype, jnp.inexact) else normalized


def batch_dot(x: jax.Array, y: jax.Array, axes: tuple[int, int]) -> jax.Array:
    """Sums the products of `x` and `y` over `axes[0]` of `x` and `axes[1]` of `y`.

    Args:
        x: array of shape (b, ...).
        y: array of shape (b, ...).
        axes: axis of `x` and axis of `y` to sum over; not 0.

    Returns:
        An array with the batch axis, the remaining axes of `x`, then those of `y`; of shape (b, 1)
        where no axis remains.
    """
    contracted = ((axes[0] % x.ndim,), (axes[1] % y.ndim,))
    z = jax.lax.dot_general(x, y, (contracted, ((0,), (0,))))
    return z[:, None] if z.ndim == 1 else z


_axis = fk.integer()
_pair = fk.several(_axis, "an axis, or a pair with one axis of each tensor", single=True)


def _axes(value: fk.Field) -> int | tuple[int, int]:
    axes = _pair(value)
    is_single = _axis.accepts(value)
    if not is_single and len(axes) != 2:
        raise ValueError(
            f"expected {_pair.expected}, received {value!r}. For (b, t, d) with (b, s, d) give "
            "axes=2."
        )
    if 0 in axes:
        raise ValueError(
            f"expected axes after the batch axis 0, received {value!r}. The product is computed "
            "per sample: count axes from 1."
        )
    return axes[0] if is_single else (axes[0], axes[1])


class Dot(fk.Layer):
    """Computes the dot product of two tensors over one axis of each, sample by sample.

    The result has no mask.

    Args:
        axes: axis to sum over, or a pair with the axis of each tensor; not 0.
        normalize: whether to divide by the norms along these axes first (cosine similarity).

    Shapes:
        (b, ...) and (b, ...) -> (b, rest of the first, rest of the second), (b, 1) for vectors.

    Raises:
        ValueError: where the inputs are not a list of two tensors, or the axes differ in size.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x, y = jnp.ones((2, 3, 5)), jnp.ones((2, 10, 3))
        >>> fk.layers.Dot(axes=(1, 2))([x, y]).shape
        (2, 5, 10)
    """

    axes: fk.Axes = fk.option(convert=_axes)
    normalize: bool = fk.option(default=False, convert=fk.boolean)

    supports_masking: ClassVar[bool] = True

    def forward(self, context: fk.Context, *inputs: fk.Tree) -> fk.Output:
        x, y = tensors = check_list(self._where, inputs, 2)
        # one axis means the same axis of both tensors
        first, second = self.axes if isinstance(self.axes, tuple) else (self.axes, self.axes)
        axes = (first, second)
        self._check(tensors, axes)
        x, y = with_common_dtype(tensors)
        if self.normalize:
            x, y = l2_normalize(x, axes[0]), l2_normalize(y, axes[1])
        return fk.Output(batch_dot(x, y, axes))

    def _check(self, tensors: list[jax.Array], axes: tuple[int, int]) -> None:
        received = describe_inputs(tensors)
        for index, (x, axis) in enumerate(zip(tensors, axes, strict=True)):
            if x.ndim < 2 or not -x.ndim < axis < x.ndim:
                raise ValueError(
                    f"{self._where}: expected an axis {axis} after the batch in input {index}, "
                    f"received {received}. Give axes as a pair where the tensors differ in rank."
                )
        for requirement, sizes in (
            ("equal batch sizes", [x.shape[0] for x in tensors]),
            (
                f"equal sizes of axis {axes[0]} of input 0 and axis {axes[1]} of input 1",
                [x.shape[a] for x, a in zip(tensors, axes, strict=True)],
            ),
        ):
            # unknown and symbolic sizes cannot be compared, and pass
            if all(isinstance(n, int) for n in sizes) and sizes[0] != sizes[1]:
                raise ValueError(
                    f"{self._where}: expected {requirement}, received {received}. Choose other axes "
                    f"(now axes={self.axes}), or make the sizes equal."
                )
