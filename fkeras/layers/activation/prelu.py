"""`PReLU`: a ReLU with a learned slope below zero."""

from __future__ import annotations

from typing import ClassVar, Self

import jax

from fkeras.layers.common import authoring as fk
from fkeras.nn.cpu.broadcasting import for_rows
from fkeras.nn.numerics.axes import format_shape


def prelu(x: jax.Array, alpha: jax.Array) -> jax.Array:
    """Computes x where x is positive, `alpha * x` elsewhere.

    Args:
        x: array of shape (b, ...).
        alpha: array of shape (...), without the batch axis, of size 1 on shared axes.

    Returns:
        An array like `x`.
    """
    # Keras's formula: the gradient at 0 is 0, where jnp.where(x > 0, x, alpha * x) has alpha
    return jax.nn.relu(x) - for_rows(alpha, x) * jax.nn.relu(-x)


_shared = fk.axes(
    batch=False, optional=True, hint="For one slope per channel of an image give (1, 2)."
)


def _axes(value: fk.Field) -> tuple[int, ...] | None:
    shared_axes = _shared(value)
    return (shared_axes,) if isinstance(shared_axes, int) else shared_axes


class PReLU(fk.Layer):
    """Computes x where x is positive, `alpha * x` elsewhere, with a learned `alpha`.

    Args:
        alpha_initializer: draws `alpha`.
        alpha_regularizer: penalty on `alpha`.
        alpha_constraint: projection of `alpha` after each update.
        shared_axes: axes along which all elements share a slope, such as (1, 2) for the height and
            width of an image; None for one slope per element. Negative axes count from the end; in
            Keras -1 means the axis before the last one.

    Shapes:
        (b, ...) -> (b, ...); alpha has the shape of the input without the batch axis, with size 1
        on shared axes.

    Raises:
        ValueError: for an axis that the input does not have, or an axis of unknown size that is not
            shared.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.PReLU("ones", shared_axes=(1, 2))
        >>> layer = layer.build(jax.random.key(0), (None, None, None, 3))
        >>> layer.alpha.shape
        (1, 1, 3)

    References:
        He et al., 2015, Delving deep into rectifiers, https://arxiv.org/abs/1502.01852
    """

    alpha_initializer: fk.Initializer = fk.option(default="zeros", convert=fk.initializer)
    alpha_regularizer: fk.Regularizer = fk.option(default=None, convert=fk.regularizer)
    alpha_constraint: fk.Constraint = fk.option(default=None, convert=fk.constraint)
    shared_axes: fk.OptionalSizes = fk.option(default=None, convert=_axes)

    alpha: jax.Array = fk.weight()

    @property
    def axis_names(self) -> fk.AxisNames:
        # the axes of alpha are those of the input, of any number
        return fk.AxisNames(fk.FrozenDict({"alpha": fk.unnamed(self.alpha)}))

    supports_masking: ClassVar[bool] = True

    @property
    def input_spec(self) -> fk.InputSpec | None:
        if self.alpha is None:
            return None
        ndim = self.alpha.ndim + 1
        # alpha has no batch axis: axis a of the input is axis a - 1 of alpha
        shared = {a % ndim for a in self.shared_axes or ()}
        sizes = {a: self.alpha.shape[a - 1] for a in range(1, ndim) if a not in shared}
        return fk.InputSpec(ndim=ndim, axes=sizes)

    def build(self, key: jax.Array, x: fk.SpecLike) -> Self:
        axes = self.shared_axes or ()
        if any(not -x.ndim < a < x.ndim for a in axes):
            raise ValueError(
                f"{self._where}: expected an input with the axes {axes}, received "
                f"{format_shape(x.dims)}. Give shared_axes from 1 to {x.ndim - 1}."
            )
        shared = {a % x.ndim for a in axes}
        # a shared axis may have an unknown size: its size is not part of the shape of alpha
        shape = tuple(1 if a in shared else x.shape[a] for a in range(1, x.ndim))
        return self.with_weights(key, alpha=shape)

    def call(self, x: jax.Array) -> jax.Array:
        return prelu(x, self.alpha)
