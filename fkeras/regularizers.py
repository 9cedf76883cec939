"""Regularizers: values that map a weight or an activation to a penalty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from fkeras.engine.config.configurable import Configurable, deserialize, lookup, option, serialize
from fkeras.engine.config.converters import choice, real
from fkeras.engine.config.field_types import Real
from fkeras.engine.values.registry import by_name, named

__all__ = (
    "L1",
    "L1L2",
    "L2",
    "OrthogonalRegularizer",
    "Regularizer",
    "deserialize",
    "get",
    "l1",
    "l1_l2",
    "l2",
    "orthogonal_regularizer",
    "serialize",
)


_number = real(minimum=0)


def _factor(value: Any) -> float:
    return _number(0.0 if value is None else value)


class Regularizer(Configurable):
    """A penalty on the numbers of a weight or of an activation.

    Subclass it and write `__call__(x)`; fields declared with `option` are its arguments.

    Example:
        >>> import jax.numpy as jnp
        >>> import fkeras as fk
        >>> class Largest(fk.regularizers.Regularizer):
        ...     factor: float = fk.option(default=0.1)
        ...     def __call__(self, x):
        ...         return self.factor * jnp.max(jnp.abs(x))
        >>> Largest(0.5)(jnp.array([1.0, -4.0]))
        Array(2., dtype=float32)
    """

    def __call__(self, x: jax.Array) -> jax.Array:
        raise NotImplementedError(
            f"{type(self).__name__}: a regularizer needs its own __call__(x). Write it in class "
            f"{type(self).__name__}."
        )


class L1(Regularizer):
    """l1 * sum(|x|).

    Args:
        l1: the factor, 0 or more.

    Raises:
        ValueError: for a factor below 0, or one that is not finite.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.regularizers.L1(0.5)(jnp.array([1.0, -2.0]))
        Array(1.5, dtype=float32)
    """

    l1: Real = option(default=0.01, convert=_factor)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.l1 * jnp.sum(jnp.abs(x))


class L2(Regularizer):
    """l2 * sum(x**2).

    Args:
        l2: the factor, 0 or more.

    Raises:
        ValueError: for a factor below 0, or one that is not finite.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.regularizers.L2(0.5)(jnp.array([1.0, -2.0]))
        Array(2.5, dtype=float32)
    """

    l2: Real = option(default=0.01, convert=_factor)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.l2 * jnp.sum(jnp.square(x))


class L1L2(Regularizer):
    """l1 * sum(|x|) + l2 * sum(x**2).

    Args:
        l1: the factor of the absolute values, 0 or more.
        l2: the factor of the squares, 0 or more.

    Raises:
        ValueError: for a factor below 0, or one that is not finite.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.regularizers.L1L2(l1=0.5, l2=0.25)(jnp.array([1.0, -2.0]))
        Array(2.75, dtype=float32)
    """

    l1: Real = option(default=0.0, convert=_factor)
    l2: Real = option(default=0.0, convert=_factor)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.l1 * jnp.sum(jnp.abs(x)) + self.l2 * jnp.sum(jnp.square(x))


class OrthogonalRegularizer(Regularizer):
    """factor times the mean absolute cosine between different rows (or columns) of a matrix.

    For columns it is the penalty on the rows of the transpose; Keras 3.15 fails there for a matrix
    that is not square.

    Args:
        factor: the strength, 0 or more.
        mode: "rows" or "columns".

    Raises:
        ValueError: for a weight that is no matrix, another mode, or a factor below 0.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> w = jnp.array([[3.0, 0.0], [4.0, 3.0]])
        >>> fk.regularizers.OrthogonalRegularizer(0.5)(w).round(3)
        Array(0.4, dtype=float32)
    """

    factor: Real = option(default=0.01, convert=_factor)
    mode: str = option(default="rows", convert=choice("rows", "columns"))

    def __call__(self, x: jax.Array) -> jax.Array:
        if x.ndim != 2:
            raise ValueError(
                f"OrthogonalRegularizer: expected a matrix, received shape {x.shape}. Use it for "
                "weights of two axes."
            )
        rows = x if self.mode == "rows" else x.T
        square = jnp.sum(jnp.square(rows), axis=1, keepdims=True)
        rows = rows * jax.lax.rsqrt(jnp.maximum(square, 1e-12))
        size = rows.shape[0]
        products = jnp.abs(rows @ rows.T) * (1.0 - jnp.eye(size, dtype=x.dtype))
        pairs = size * (size - 1) / 2
        return self.factor * 0.5 * jnp.sum(products) / max(pairs, 1.0)


# Keras's other names of the same classes
l1 = L1
l2 = L2
l1_l2 = L1L2
orthogonal_regularizer = OrthogonalRegularizer

_REGISTERED = (
    named(L1, "l1"),
    named(L2, "l2"),
    named(L1L2, "l1_l2", "l1l2"),
    named(OrthogonalRegularizer, "orthogonal_regularizer"),
)
_NAMES = by_name(_REGISTERED)


def get(identifier: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """The regularizer that a name, a configuration or a function means; None for none.

    Args:
        identifier: a name such as "l2", what `serialize` wrote, a regularizer or its class, a
            function of a weight, or None.
        custom_objects: your own classes and functions by name.

    Raises:
        ValueError: for an unknown name, with the nearest one.

    Example:
        >>> import fkeras as fk
        >>> fk.regularizers.get("l2")
        L2()
    """
    return lookup(identifier, "regularizer", _NAMES, custom_objects)
