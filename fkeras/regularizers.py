"""Regularizers: values that map a weight or an activation to a penalty."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, overload

import jax
import jax.numpy as jnp

from fkeras.engine.config.configurable import Configurable, deserializer, lookup, option, serialize
from fkeras.engine.config.converters import choice, real
from fkeras.engine.config.field_types import Named, Real
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.engine.values.registry import by_name, named
from fkeras.nn.numerics.stable import unit_vectors

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


# Keras accepts None for a factor of 0
def _factor(value: Any) -> float:
    return _number(0.0 if value is None else value)


class Regularizer(Configurable):
    """Base class of regularizers, which compute a penalty for a weight or an activation.

    Subclasses define `__call__(x)`; fields declared with `option` are the constructor's arguments.

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
    """Computes l1 * sum(|x|).

    Args:
        l1: the factor, non-negative.

    Raises:
        ValueError: for a negative or non-finite factor.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.regularizers.L1(0.5)(jnp.array([1.0, -2.0]))
        Array(1.5, dtype=float32)
    """

    l1: Real = option(default=0.01, convert=_factor)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.l1 * jnp.sum(jnp.abs(x))


class L2(Regularizer):
    """Computes l2 * sum(x**2).

    Args:
        l2: the factor, non-negative.

    Raises:
        ValueError: for a negative or non-finite factor.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.regularizers.L2(0.5)(jnp.array([1.0, -2.0]))
        Array(2.5, dtype=float32)
    """

    l2: Real = option(default=0.01, convert=_factor)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.l2 * jnp.sum(jnp.square(x))


class L1L2(Regularizer):
    """Computes l1 * sum(|x|) + l2 * sum(x**2).

    Args:
        l1: the factor of the absolute values, non-negative.
        l2: the factor of the squares, non-negative.

    Raises:
        ValueError: for a negative or non-finite factor.

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
    """Computes factor times the mean absolute cosine between different rows of a matrix.

    With mode "columns", the penalty is that of the transpose's rows; Keras 3.15 fails in this mode
    for matrices that are not square.

    Args:
        factor: the strength, non-negative.
        mode: "rows" or "columns".

    Raises:
        ValueError: for a weight that is not a matrix, an unknown mode, or a negative factor.

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
        rows = unit_vectors(rows, 1, 1e-6)  # Keras bounds the squares by 1e-12
        size = rows.shape[0]
        products = jnp.abs(rows @ rows.T) * (1.0 - jnp.eye(size, dtype=x.dtype))
        # the matrix holds each pair twice, hence the factor 0.5; a single row has no pairs
        pairs = size * (size - 1) / 2
        return self.factor * 0.5 * jnp.sum(products) / max(pairs, 1.0)


# Keras's aliases
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


@overload
def get(identifier: None, custom_objects: Mapping[str, Any] | None = None) -> None: ...


@overload
def get(
    identifier: Named, custom_objects: Mapping[str, Any] | None = None
) -> Callable[..., Any]: ...


@hides_internal_frames
def get(
    identifier: Named | None, custom_objects: Mapping[str, Any] | None = None
) -> Callable[..., Any] | None:
    """Returns the regularizer for a name, a configuration or a function; None for None.

    Args:
        identifier: a name such as "l2", data from `serialize`, a regularizer or its class, a
            function of a weight, or None.
        custom_objects: your classes and functions by name.

    Raises:
        ValueError: for an unknown name; the message suggests the nearest known name.

    Example:
        >>> import fkeras as fk
        >>> fk.regularizers.get("l2")
        L2()
    """
    return lookup(identifier, "regularizer", _NAMES, custom_objects)


deserialize = deserializer(get)
