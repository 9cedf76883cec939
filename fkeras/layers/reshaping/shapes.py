"""Layers that change the shape only: `Flatten`, `Reshape`, `Permute`, `RepeatVector`.

The layers reject masks: a mask of the old axes has no defined meaning for the new axes, so the
caller decides.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk
from fkeras.nn.numerics.axes import format_shape


def flatten(x: jax.Array, data_format: str | None = "channels_last") -> jax.Array:
    """Merges all axes after the first into one axis.

    Args:
        x: array of shape (b, ...).
        data_format: "channels_first" moves axis 1 to the end before the axes are merged.

    Returns:
        An array of shape (b, n); (b, 1) for an array of shape (b,).

    Example:
        >>> import jax.numpy as jnp
        >>> flatten(jnp.ones((2, 3, 4))).shape
        (2, 12)
    """
    # as in Keras: a Dense layer after Flatten has the same kernel for both data formats
    if data_format == "channels_first" and x.ndim > 2:
        x = jnp.moveaxis(x, 1, -1)
    return jnp.reshape(x, (x.shape[0], math.prod(x.shape[1:])))


class Flatten(fk.Layer):
    """Merges all axes after the batch axis into one axis.

    Args:
        data_format: "channels_last" (also None), or "channels_first", which moves the channels of
            (b, c, ...) to the end before the axes are merged.

    Shapes:
        (b, ...) -> (b, n); (b,) -> (b, 1).

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.Flatten()(jnp.arange(4.0).reshape(1, 2, 2))
        Array([[0., 1., 2., 3.]], dtype=float32)
    """

    data_format: str | None = fk.option(default=None, convert=fk.data_format_name)

    @property
    def input_spec(self) -> fk.InputSpec:
        return fk.InputSpec(min_ndim=1)

    def call(self, x: jax.Array) -> jax.Array:
        return flatten(x, self.data_format)


_sizes = fk.several(
    fk.integer(minimum=-1),
    "sizes without the batch axis, at most one of them -1 (inferred)",
    single=True,
    least=0,
    hint="For (b, 12) -> (b, 3, 4) give (3, 4).",
)


def _target_shape(value: fk.Field) -> tuple[int, ...]:
    shape = _sizes(value)
    if shape.count(-1) > 1:
        raise ValueError(f"expected {_sizes.expected}, received {value!r}.{_sizes.hint}")
    return shape


class Reshape(fk.Layer):
    """Reshapes each sample.

    Args:
        target_shape: new sizes without the batch axis; one size may be -1, which is inferred.

    Shapes:
        (b, ...) -> (b, *target_shape). A model checks unknown sizes of its inputs when it runs.

    Raises:
        ValueError: where the number of elements of a sample differs from that of `target_shape`.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.Reshape((2, -1))(jnp.arange(6.0).reshape(1, 6))[0]
        Array([[0., 1., 2.],
               [3., 4., 5.]], dtype=float32)
    """

    target_shape: fk.Sizes = fk.option(convert=_target_shape)

    @property
    def input_spec(self) -> fk.InputSpec:
        return fk.InputSpec(min_ndim=1)

    def call(self, x: jax.Array) -> jax.Array:
        size = math.prod(x.shape[1:])
        known_size = math.prod(n for n in self.target_shape if n != -1)
        has_inferred = -1 in self.target_shape
        if isinstance(size, int):
            # beside a size of 0, -1 has no unique value: rejected
            fits = (
                size % known_size == 0
                if has_inferred and known_size
                else size == known_size and not has_inferred
            )
        else:
            # unknown sizes may fit, unless their known factor does not
            factor = math.prod(n for n in x.shape[1:] if isinstance(n, int))
            fits = known_size != 0 if has_inferred else known_size % factor == 0
        if not fits:
            amount = f"a multiple of {known_size}" if has_inferred else str(known_size)
            raise ValueError(
                f"{self._where}: expected {amount} elements per sample, for the shape "
                f"{format_shape(('b', *self.target_shape))}, received {format_shape(x.shape)} "
                f"with {size}. Change target_shape, or use -1 for one size that varies."
            )
        inferred = size // known_size if isinstance(size, int) and has_inferred else -1
        sizes = (inferred if n == -1 else n for n in self.target_shape)
        return jnp.reshape(x, (x.shape[0], *sizes))


_order = fk.several(fk.integer(), "each of the axes after the batch once", single=True)


def _dims(value: fk.Field) -> tuple[int, ...]:
    dims = _order(value)
    if sorted(dims) != list(range(1, len(dims) + 1)):
        raise ValueError(
            f"expected each of the axes 1 to {len(dims)} once, received {value!r}. Axis 0, the "
            "batch, is fixed, so axes count from 1: (2, 1) swaps the axes of (b, t, d)."
        )
    return dims


class Permute(fk.Layer):
    """Transposes the axes after the batch axis.

    Args:
        dims: for each new axis, the index of the old axis; axes are counted from 1.

    Shapes:
        (b, d1, d2, ...) -> (b, d[dims[0]], d[dims[1]], ...).

    Raises:
        ValueError: where `dims` is not a permutation of 1, 2, ...

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.Permute((2, 1))(jnp.arange(6.0).reshape(1, 2, 3))[0]
        Array([[0., 3.],
               [1., 4.],
               [2., 5.]], dtype=float32)
    """

    dims: fk.Sizes = fk.option(convert=_dims)

    @property
    def input_spec(self) -> fk.InputSpec:
        return fk.InputSpec(ndim=len(self.dims) + 1)

    def call(self, x: jax.Array) -> jax.Array:
        return jnp.transpose(x, (0, *self.dims))


class RepeatVector(fk.Layer):
    """Repeats each vector `n` times along a new time axis.

    Args:
        n: number of time steps.

    Shapes:
        (b, d) -> (b, n, d).

    Raises:
        ValueError: where `n` is not a positive integer.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.RepeatVector(3)(jnp.array([[1.0, 2.0]]))[0]
        Array([[1., 2.],
               [1., 2.],
               [1., 2.]], dtype=float32)
    """

    n: fk.Integer = fk.option(convert=fk.integer(minimum=1))

    @property
    def input_spec(self) -> fk.InputSpec:
        return fk.InputSpec(ndim=2)

    def call(self, x: jax.Array) -> jax.Array:
        # a broadcast, which XLA fuses with its consumer
        return jnp.broadcast_to(x[:, None, :], (x.shape[0], self.n, x.shape[1]))
