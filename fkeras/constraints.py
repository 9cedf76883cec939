"""Constraints: values that project a weight after each step."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from fkeras.engine.config import Configurable, deserialize, lookup, option, serialize

__all__ = ("MaxNorm", "MinMaxNorm", "NonNeg", "UnitNorm", "deserialize", "get", "serialize")

_EPSILON = 1e-7


def _norm(w: jax.Array, axis: Any) -> jax.Array:
    return jnp.sqrt(jnp.sum(jnp.square(w), axis=axis, keepdims=True))


class MaxNorm(Configurable):
    """w scaled down to norm `max_value` along `axis` where its norm is larger.

    Args:
        max_value: the largest norm.
        axis: the axis, or axes, of one norm.
    """

    max_value: float = option(2)
    axis: int | tuple[int, ...] = option(0)

    def __call__(self, w: jax.Array) -> jax.Array:
        norms = _norm(w, self.axis)
        return w * (jnp.clip(norms, 0, self.max_value) / (_EPSILON + norms))


class NonNeg(Configurable):
    """max(w, 0).

    Example:
        >>> import jax.numpy as jnp
        >>> NonNeg()(jnp.array([-1.0, 2.0]))
        Array([0., 2.], dtype=float32)
    """

    def __call__(self, w: jax.Array) -> jax.Array:
        return jnp.maximum(w, 0)


class UnitNorm(Configurable):
    """w scaled to norm 1 along `axis`."""

    axis: int | tuple[int, ...] = option(0)

    def __call__(self, w: jax.Array) -> jax.Array:
        return w / (_EPSILON + _norm(w, self.axis))


class MinMaxNorm(Configurable):
    """w moved towards a norm between `min_value` and `max_value` along `axis`.

    Args:
        min_value: the smallest norm.
        max_value: the largest norm.
        rate: 1 to reach the bound at once, less to come nearer by this fraction a step.
        axis: the axis, or axes, of one norm.
    """

    min_value: float = option(0.0)
    max_value: float = option(1.0)
    rate: float = option(1.0)
    axis: int | tuple[int, ...] = option(0)

    def __call__(self, w: jax.Array) -> jax.Array:
        norms = _norm(w, self.axis)
        bounded = jnp.clip(norms, self.min_value, self.max_value)
        return w * ((self.rate * bounded + (1 - self.rate) * norms) / (_EPSILON + norms))


_NAMES: Mapping[str, type] = types.MappingProxyType(
    {
        "max_norm": MaxNorm,
        "non_neg": NonNeg,
        "unit_norm": UnitNorm,
        "min_max_norm": MinMaxNorm,
        **{cls.__name__: cls for cls in (MaxNorm, NonNeg, UnitNorm, MinMaxNorm)},
    }
)


def get(identifier: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """The constraint that a name, a configuration or a function means; None for none.

    Example:
        >>> get("non_neg")
        NonNeg()
    """
    return lookup(identifier, "constraint", _NAMES, custom_objects)
