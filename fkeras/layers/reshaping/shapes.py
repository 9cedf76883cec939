"""Layers that give the same numbers another shape: `Flatten`, `Reshape`, `Permute`, `RepeatVector`.

None of them takes a mask: what a mask of the old axes says of the new ones is for the caller to
decide.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from fkeras.engine import InputSpec, Layer, option
from fkeras.engine.config.converters import data_format_name, integer, several
from fkeras.engine.config.field_types import Integer, Sizes
from fkeras.nn.numerics.axes import format_shape


def flatten(x: jax.Array, data_format: str | None = "channels_last") -> jax.Array:
    """Reads all axes but the first as one.

    Args:
        x: array of shape (b, ...).
        data_format: "channels_first" moves axis 1 to the end before.

    Returns:
        An array of shape (b, n), with n = 1 where there is no other axis.

    Example:
        >>> import jax.numpy as jnp
        >>> flatten(jnp.ones((2, 3, 4))).shape
        (2, 12)
    """
    if data_format == "channels_first" and x.ndim > 2:
        x = jnp.moveaxis(x, 1, -1)
    return jnp.reshape(x, (x.shape[0], math.prod(x.shape[1:])))


class Flatten(Layer):
    """Reads all axes but the batch as one.

    Args:
        data_format: "channels_last" (None means the same), or "channels_first", which puts the
            channels of (b, c, ...) last before it flattens.

    Shapes:
        (b, ...) -> (b, n); (b,) -> (b, 1).

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.Flatten()(jnp.arange(4.0).reshape(1, 2, 2))
        Array([[0., 1., 2., 3.]], dtype=float32)
    """

    data_format: str | None = option(default=None, convert=data_format_name)

    @property
    def input_spec(self) -> InputSpec:
        return InputSpec(min_ndim=1)

    def call(self, x: jax.Array) -> jax.Array:
        return flatten(x, self.data_format)


_sizes = several(
    integer(minimum=-1),
    "sizes without the batch axis, at most one of them -1 (inferred)",
    single=True,
    least=0,
    hint="For (b, 12) -> (b, 3, 4) give (3, 4).",
)


def _target_shape(value: Any) -> tuple[int, ...]:
    found = _sizes(value)
    if found.count(-1) > 1:
        raise ValueError(f"expected {_sizes.expected}, received {value!r}.{_sizes.hint}")
    return found


class Reshape(Layer):
    """Reads the axes after the batch as other axes of the same size in all.

    Args:
        target_shape: the new sizes without the batch axis; one may be -1, and is inferred.

    Shapes:
        (b, ...) -> (b, *target_shape).

    Raises:
        ValueError: where the input does not hold as many numbers as the target.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.Reshape((2, -1))(jnp.arange(6.0).reshape(1, 6))[0]
        Array([[0., 1., 2.],
               [3., 4., 5.]], dtype=float32)
    """

    target_shape: Sizes = option(convert=_target_shape)

    @property
    def input_spec(self) -> InputSpec:
        return InputSpec(min_ndim=1)

    def call(self, x: jax.Array) -> jax.Array:
        size = math.prod(x.shape[1:])
        known = math.prod(n for n in self.target_shape if n != -1)
        free = -1 in self.target_shape
        if isinstance(size, int):
            fits = size % known == 0 if free and known else size == known and not free
            if not fits:
                amount = f"a multiple of {known}" if free else str(known)
                raise ValueError(
                    f"{self.where}: expected {amount} numbers an example, for the shape "
                    f"{format_shape(('b', *self.target_shape))}, received "
                    f"{format_shape(x.shape)} with {size}. Change target_shape, or put -1 for the "
                    "size that may vary."
                )
            sizes = tuple(size // known if n == -1 else n for n in self.target_shape)
            return jnp.reshape(x, (x.shape[0], *sizes))
        if not free:
            raise ValueError(
                f"{self.where}: expected an input of known size, as target_shape="
                f"{self.target_shape} has no -1, received {format_shape(x.shape)}. Put -1 for the "
                "axis that varies, or give the input's axes sizes in fk.Input."
            )
        return jnp.reshape(x, (x.shape[0], *self.target_shape))


_order = several(integer(), "each of the axes after the batch once", single=True)


def _dims(value: Any) -> tuple[int, ...]:
    dims = _order(value)
    if sorted(dims) != list(range(1, len(dims) + 1)):
        raise ValueError(
            f"expected each of the axes 1 to {len(dims)} once, received {value!r}. Axes count from "
            "1, as the batch axis 0 stays: (2, 1) swaps the axes of (b, t, d)."
        )
    return dims


class Permute(Layer):
    """Puts the axes after the batch in another order.

    Args:
        dims: for each new axis the old one, counted from 1.

    Shapes:
        (b, d1, d2, ...) -> (b, d[dims[0]], d[dims[1]], ...).

    Raises:
        ValueError: where `dims` is no permutation of 1, 2, ...

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.Permute((2, 1))(jnp.arange(6.0).reshape(1, 2, 3))[0]
        Array([[0., 3.],
               [1., 4.],
               [2., 5.]], dtype=float32)
    """

    dims: Sizes = option(convert=_dims)

    @property
    def input_spec(self) -> InputSpec:
        return InputSpec(ndim=len(self.dims) + 1)

    def call(self, x: jax.Array) -> jax.Array:
        return jnp.transpose(x, (0, *self.dims))


class RepeatVector(Layer):
    """Repeats each vector `n` times, as steps of a sequence.

    Args:
        n: the number of steps.

    Shapes:
        (b, d) -> (b, n, d).

    Raises:
        ValueError: where `n` is no positive integer.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.RepeatVector(3)(jnp.array([[1.0, 2.0]]))[0]
        Array([[1., 2.],
               [1., 2.],
               [1., 2.]], dtype=float32)
    """

    n: Integer = option(convert=integer(minimum=1))

    @property
    def input_spec(self) -> InputSpec:
        return InputSpec(ndim=2)

    def call(self, x: jax.Array) -> jax.Array:
        return jnp.broadcast_to(x[:, None, :], (x.shape[0], self.n, x.shape[1]))
