"""Deterministic initializers, which ignore the key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine.config.configurable import option
from fkeras.engine.config.converters import numeric, real
from fkeras.engine.config.field_types import Numbers, Real
from fkeras.engine.config.keras_form import KerasForm
from fkeras.engine.values.argument_types import DTypeLike
from fkeras.engine.values.registry import named
from fkeras.initializers.initializer import Initializer, full


class Zeros(Initializer):
    """Fills a weight with 0.

    Example:
        >>> import jax, fkeras as fk
        >>> fk.initializers.Zeros()(jax.random.key(0), (2,))
        Array([0., 0.], dtype=float32)
    """

    def __call__(
        self, key: jax.Array, shape: Sequence[int], dtype: DTypeLike = "float32"
    ) -> jax.Array:
        return full(key, shape, 0, dtype)


class Ones(Initializer):
    """Fills a weight with 1.

    Example:
        >>> import jax, fkeras as fk
        >>> fk.initializers.Ones()(jax.random.key(0), (2,))
        Array([1., 1.], dtype=float32)
    """

    def __call__(
        self, key: jax.Array, shape: Sequence[int], dtype: DTypeLike = "float32"
    ) -> jax.Array:
        return full(key, shape, 1, dtype)


class Constant(Initializer):
    """Fills a weight with `value`.

    Args:
        value: a number, or an array that broadcasts to the weight's shape.

    Example:
        >>> import jax, fkeras as fk
        >>> fk.initializers.Constant([0.5, 2.0])(jax.random.key(0), (2, 2))
        Array([[0.5, 2. ],
               [0.5, 2. ]], dtype=float32)
    """

    value: Numbers = option(default=0.0, convert=numeric(infinite=True))

    def __call__(
        self, key: jax.Array, shape: Sequence[int], dtype: DTypeLike = "float32"
    ) -> jax.Array:
        return full(key, shape, np.asarray(self.value), dtype)


class Exactly(Constant):
    """Creates a weight that equals an array of the same shape; files hold it as `Constant`.

    Example:
        >>> import jax
        >>> Exactly([0.5, 2.0])(jax.random.key(0), (2,))
        Array([0.5, 2. ], dtype=float32)
    """

    _keras_form: ClassVar[KerasForm] = KerasForm(class_name="Constant")

    def __call__(
        self, key: jax.Array, shape: Sequence[int], dtype: DTypeLike = "float32"
    ) -> jax.Array:
        if np.shape(self.value) != tuple(shape):
            raise ValueError(
                f"expected an initial array of the weight's shape {tuple(shape)}, received one of "
                f"shape {np.shape(self.value)}. fk.initializers.Constant broadcasts an array."
            )
        return super().__call__(key, shape, dtype)


class Identity(Initializer):
    """Fills a weight with `gain` times the identity matrix.

    Args:
        gain: the factor.

    Raises:
        ValueError: for a weight that is not a matrix.

    Example:
        >>> import jax, fkeras as fk
        >>> fk.initializers.Identity(2.0)(jax.random.key(0), (2, 3))
        Array([[2., 0., 0.],
               [0., 2., 0.]], dtype=float32)
    """

    gain: Real = option(default=1.0, convert=real())

    def __call__(
        self, key: jax.Array, shape: Sequence[int], dtype: DTypeLike = "float32"
    ) -> jax.Array:
        if len(shape) != 2:
            raise ValueError(
                f"Identity: expected a matrix, received the shape {tuple(shape)}. Use it for "
                "weights of two axes."
            )
        # computed by NumPy: jnp.eye would compile a program for each shape
        return jax.device_put((self.gain * np.eye(shape[0], shape[1])).astype(jnp.dtype(dtype)))


INITIALIZERS = (
    named(Zeros, "zeros", "zero"),
    named(Ones, "ones", "one"),
    named(Constant, "constant"),
    named(Identity, "identity", "IdentityInitializer"),
)
