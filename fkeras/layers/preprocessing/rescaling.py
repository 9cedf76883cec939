"""`Rescaling`: linear rescaling of values."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from fkeras.layers.common import authoring as fk
from fkeras.layers.common.arguments import check_representable
from fkeras.nn.numerics.axes import format_shape


def rescale(
    x: jax.Array, scale: fk.Leaf, offset: fk.Leaf = 0.0, dtype: DTypeLike | None = None
) -> jax.Array:
    """Computes `x * scale + offset`.

    Args:
        scale: a scalar, or an array that broadcasts along the last axes of `x`.
        offset: a scalar, or an array that broadcasts along the last axes of `x`.
        dtype: dtype of the result; None for float32.
    """
    dtype = jnp.dtype(dtype or "float32")

    def fitted(value: fk.Field) -> jax.Array:
        array = jnp.asarray(np.asarray(value), dtype)
        return jnp.reshape(array, (1,) * (x.ndim - array.ndim) + array.shape)

    return x.astype(dtype) * fitted(scale) + fitted(offset)


_number = fk.numeric(hint="For bytes to [0, 1]: Rescaling(1 / 255).")


def _numbers(value: fk.Field) -> Any:
    values = _number(value)
    array = np.asarray(getattr(values, "array", values))
    if array.size == 0:
        raise ValueError(
            "expected a number, or numbers, received none. For bytes to [0, 1]: 1 / 255."
        )
    return array.tolist()


class Rescaling(fk.Layer):
    """Computes `x * scale + offset`, in training and in inference.

    Integers, such as the bytes of an image, are converted to the compute dtype.

    Args:
        scale: a scalar, or numbers for the last axes of the input.
        offset: a scalar, or numbers for the last axes of the input.

    Shapes:
        (b, ...) -> (b, ...).

    Raises:
        TypeError: if `scale` or `offset` is neither a number nor a list of numbers.
        ValueError: if they have more axes than the input, are empty, or are infinite in the compute
            dtype.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.Rescaling(1 / 128, offset=-1.0)
        >>> layer(jnp.array([[0, 128]], "uint8"))
        Array([[-1.,  0.]], dtype=float32)
    """

    scale: fk.Numbers = fk.option(convert=_numbers)
    offset: fk.Numbers = fk.option(default=0.0, convert=_numbers)

    supports_masking: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        dtype = self.policy.compute_dtype
        check_representable(self._where, dtype, scale=self.scale, offset=self.offset)

    def call(self, x: jax.Array) -> jax.Array:
        ndim = max(np.ndim(self.scale), np.ndim(self.offset))
        if ndim > x.ndim:
            raise ValueError(
                f"{self._where}: expected an input of at least {ndim} axes, as scale or offset "
                f"has, received {format_shape(x.shape)}. Give numbers for its last axes only."
            )
        return rescale(x, self.scale, self.offset, self.policy.compute_dtype)
