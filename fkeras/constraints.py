"""Constraints: values that project a weight onto a set after each training step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, overload

import jax
import jax.numpy as jnp

from fkeras.engine.config.configurable import Configurable, deserializer, lookup, option, serialize
from fkeras.engine.config.converters import axes, probability, real
from fkeras.engine.config.field_types import Axes, Named, Real
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.engine.values.registry import by_name, named
from fkeras.nn.numerics.stable import EPSILON

__all__ = (
    "Constraint",
    "MaxNorm",
    "MinMaxNorm",
    "NonNeg",
    "UnitNorm",
    "deserialize",
    "get",
    "max_norm",
    "min_max_norm",
    "non_neg",
    "serialize",
    "unit_norm",
)


def _norm(w: jax.Array, axis: Any) -> jax.Array:
    square = jnp.sum(jnp.square(w), axis=axis, keepdims=True)
    # sqrt has an infinite derivative at 0, which becomes NaN; the inner where avoids that, and the
    # derivative of a norm of 0 is 0
    return jnp.where(square == 0, 0.0, jnp.sqrt(jnp.where(square == 0, 1.0, square)))


class Constraint(Configurable):
    """Base class of constraints, which project a weight onto a set of allowed values.

    Subclasses define `__call__(w)`; fields declared with `option` are the constructor's arguments.

    Example:
        >>> import jax.numpy as jnp
        >>> import fkeras as fk
        >>> class Box(fk.constraints.Constraint):
        ...     limit: float = fk.option(default=1.0)
        ...     def __call__(self, w):
        ...         return jnp.clip(w, -self.limit, self.limit)
        >>> Box(2.0)(jnp.array([-3.0, 1.0]))
        Array([-2.,  1.], dtype=float32)
    """

    def __call__(self, w: jax.Array) -> jax.Array:
        raise NotImplementedError(
            f"{type(self).__name__}: a constraint needs its own __call__(w). Write it in class "
            f"{type(self).__name__}."
        )


class MaxNorm(Constraint):
    """Scales w down to the norm `max_value` along `axis` if the norm is larger.

    Args:
        max_value: the maximum norm.
        axis: the axis, or axes, of one norm: 0 for each unit of a `Dense` kernel (d, u), (0, 1, 2)
            for each filter of a kernel (h, w, c, f).

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> w = jnp.array([[3.0, 0.3], [4.0, 0.4]])
        >>> fk.constraints.MaxNorm(1.0)(w).round(3)
        Array([[0.6, 0.3],
               [0.8, 0.4]], dtype=float32)

    References:
        Srivastava et al. 2014, Dropout, https://jmlr.org/papers/v15/srivastava14a.html
    """

    max_value: Real = option(default=2, convert=real(minimum=0))
    axis: Axes = option(default=0, convert=axes())

    def __call__(self, w: jax.Array) -> jax.Array:
        norms = _norm(w, self.axis)
        return w * (jnp.clip(norms, 0, self.max_value) / (EPSILON + norms))


class NonNeg(Constraint):
    """Computes max(w, 0).

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.constraints.NonNeg()(jnp.array([-1.0, 2.0]))
        Array([0., 2.], dtype=float32)
    """

    def __call__(self, w: jax.Array) -> jax.Array:
        return jnp.maximum(w, 0)


class UnitNorm(Constraint):
    """Scales w to the norm 1 along `axis`; a norm of 0 stays 0.

    Args:
        axis: the axis, or axes, of one norm: 0 for each unit of a `Dense` kernel (d, u), (0, 1, 2)
            for each filter of a kernel (h, w, c, f).

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> w = jnp.array([[3.0, 0.3], [4.0, 0.4]])
        >>> fk.constraints.UnitNorm()(w).round(3)
        Array([[0.6, 0.6],
               [0.8, 0.8]], dtype=float32)
    """

    axis: Axes = option(default=0, convert=axes())

    def __call__(self, w: jax.Array) -> jax.Array:
        return w / (EPSILON + _norm(w, self.axis))


class MinMaxNorm(Constraint):
    """Scales w towards a norm between `min_value` and `max_value` along `axis`.

    Args:
        min_value: the minimum norm.
        max_value: the maximum norm.
        rate: the fraction of the distance to the bound that each step covers; 1 enforces the
            bounds exactly.
        axis: the axis, or axes, of one norm: 0 for each unit of a `Dense` kernel (d, u), (0, 1, 2)
            for each filter of a kernel (h, w, c, f).

    Raises:
        ValueError: if `min_value` is larger than `max_value`.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> w = jnp.array([[3.0, 0.3], [4.0, 0.4]])
        >>> fk.constraints.MinMaxNorm(1.0, 2.0)(w).round(3)
        Array([[1.2, 0.6],
               [1.6, 0.8]], dtype=float32)
    """

    min_value: Real = option(default=0.0, convert=real(minimum=0))
    max_value: Real = option(default=1.0, convert=real(minimum=0))
    rate: Real = option(default=1.0, convert=probability)
    axis: Axes = option(default=0, convert=axes())

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_value > self.max_value:
            raise ValueError(
                f"MinMaxNorm: expected min_value of at most max_value, received {self.min_value} and "
                f"{self.max_value}. The arguments are MinMaxNorm(min_value, max_value)."
            )

    def __call__(self, w: jax.Array) -> jax.Array:
        norms = _norm(w, self.axis)
        clipped_norms = jnp.clip(norms, self.min_value, self.max_value)
        return w * ((self.rate * clipped_norms + (1 - self.rate) * norms) / (EPSILON + norms))


# Keras's aliases
max_norm = MaxNorm
min_max_norm = MinMaxNorm
non_neg = NonNeg
unit_norm = UnitNorm

_REGISTERED = (
    named(MaxNorm, "max_norm"),
    named(NonNeg, "non_neg"),
    named(UnitNorm, "unit_norm"),
    named(MinMaxNorm, "min_max_norm"),
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
    """Returns the constraint for a name, a configuration or a function; None for None.

    Args:
        identifier: a name such as "non_neg", data from `serialize`, a constraint or its class, a
            function of a weight, or None.
        custom_objects: your classes and functions by name.

    Raises:
        ValueError: for an unknown name; the message suggests the nearest known name.

    Example:
        >>> import fkeras as fk
        >>> fk.constraints.get("non_neg")
        NonNeg()
    """
    return lookup(identifier, "constraint", _NAMES, custom_objects)


deserialize = deserializer(get)
