"""The initializer `Orthogonal`, for matrices with orthonormal rows or columns."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fkeras.engine.config.configurable import option
from fkeras.engine.config.converters import integer, real
from fkeras.engine.config.field_types import OptionalInteger, Real
from fkeras.engine.values.argument_types import DTypeLike
from fkeras.engine.values.random import normal
from fkeras.engine.values.registry import named
from fkeras.initializers.initializer import Initializer, own_key


@jax.jit
def _orthonormal(flat: jax.Array) -> jax.Array:
    q, r = jnp.linalg.qr(flat)
    # QR is unique up to signs; a positive diagonal of r makes q uniformly distributed
    return q * jnp.sign(jnp.diagonal(r))[None, :]


class Orthogonal(Initializer):
    """Creates `gain` times a matrix with orthonormal rows or columns, whichever are fewer.

    Weights with more axes are reshaped to a matrix that keeps the last axis.

    Args:
        gain: the factor.
        Other arguments: those of `RandomNormal`.

    Raises:
        ValueError: for a weight of fewer than two axes.

    Example:
        >>> import jax, fkeras as fk
        >>> w = fk.initializers.Orthogonal(2.0)(jax.random.key(0), (4, 2))
        >>> abs(w.T @ w).round(3)
        Array([[4., 0.],
               [0., 4.]], dtype=float32)

    References:
        Saxe et al. 2013, Exact Solutions to the Nonlinear Dynamics of Learning in Deep Linear
        Neural Networks, https://arxiv.org/abs/1312.6120
    """

    gain: Real = option(default=1.0, convert=real())
    seed: OptionalInteger = option(default=None, convert=integer(optional=True))

    def __call__(
        self, key: jax.Array, shape: Sequence[int], dtype: DTypeLike = "float32"
    ) -> jax.Array:
        if len(shape) < 2:
            raise ValueError(
                f"Orthogonal: expected a weight of two axes or more, received shape {tuple(shape)}."
            )
        rows, columns = math.prod(shape[:-1]), shape[-1]
        flat = normal(own_key(key, self.seed), (max(rows, columns), min(rows, columns)))
        # reduced QR needs a tall matrix, so a wide weight is transposed afterwards
        q = _orthonormal(flat)
        if isinstance(q, Tracer):
            q = q.T if rows < columns else q
            return (np.float32(self.gain) * jnp.reshape(q, shape)).astype(dtype)
        host = np.asarray(q).T if rows < columns else np.asarray(q)
        host = np.float32(self.gain) * np.reshape(host, shape)
        return jax.device_put(host.astype(jnp.dtype(dtype)))


INITIALIZERS = (named(Orthogonal, "orthogonal", "OrthogonalInitializer"),)
