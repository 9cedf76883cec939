"""Reductions that ignore NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, overload

import jax
import jax.numpy as jnp

from fkeras.engine.call.node import TensorLike
from fkeras.engine.layer.layer import Tensor
from fkeras.engine.symbolic.define import described, op, to_array
from fkeras.engine.symbolic.operation import Op
from fkeras.engine.values.argument_types import Axes, DTypeLike
from fkeras.nn.numerics.stable import safe_sqrt
from fkeras.ops.numpy.reductions import axes_of

__all__ = (
    "nanargmax",
    "nanargmin",
    "nancumprod",
    "nancumsum",
    "nanmax",
    "nanmean",
    "nanmedian",
    "nanmin",
    "nanpercentile",
    "nanprod",
    "nanquantile",
    "nanstd",
    "nansum",
    "nanvar",
)


if TYPE_CHECKING:

    class _Reduction(Op[...]):
        @overload
        def __call__(
            self, x: Tensor, axis: Axes = None, keepdims: bool = False, *, name: str | None = None
        ) -> Tensor: ...

        @overload
        def __call__(
            self,
            x: TensorLike,
            axis: Axes = None,
            keepdims: bool = False,
            *,
            name: str | None = None,
        ) -> jax.Array: ...

        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

    class _Running(Op[...]):
        @overload
        def __call__(
            self,
            x: Tensor,
            axis: int | None = None,
            dtype: DTypeLike | None = None,
            *,
            name: str | None = None,
        ) -> Tensor: ...

        @overload
        def __call__(
            self,
            x: TensorLike,
            axis: int | None = None,
            dtype: DTypeLike | None = None,
            *,
            name: str | None = None,
        ) -> jax.Array: ...

        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

else:
    _Reduction = _Running = Op


def _reduction(
    name: str, function: Callable[..., jax.Array], doc: str, example: str, shown: str
) -> _Reduction:
    def reduce(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> jax.Array:
        return function(to_array(x), axis=axes_of(axis), keepdims=keepdims)

    arguments = """x: array of any shape.
axis: one axis or several; None for all axes.
keepdims: whether to keep the reduced axes with size 1."""
    # generated, since all reductions document the same arguments
    reduce.__doc__ = described(doc, arguments, example, shown)
    return _Reduction(name, reduce)


def _running(
    name: str, function: Callable[..., jax.Array], doc: str, example: str, shown: str
) -> _Running:
    def accumulate(
        x: TensorLike, axis: int | None = None, dtype: DTypeLike | None = None
    ) -> jax.Array:
        return function(to_array(x), axis=axis, dtype=dtype)

    arguments = """x: array of any shape.
axis: the axis; None for the flattened array.
dtype: dtype of the sums or products; None for the dtype of x."""
    # generated, as in `_reduction`
    accumulate.__doc__ = described(doc, arguments, example, shown)
    return _Running(name, accumulate)


nanargmax = _reduction(
    "nanargmax",
    jnp.nanargmax,
    "The index of the largest number on an axis.",
    'nanargmax([1.0, float("nan"), 3.0])',
    "2",
)
nanargmin = _reduction(
    "nanargmin",
    jnp.nanargmin,
    "The index of the smallest number on an axis.",
    'nanargmin([1.0, float("nan"), 3.0])',
    "0",
)
nanmax = _reduction(
    "nanmax",
    jnp.nanmax,
    "The largest number along the axes.",
    'nanmax([1.0, float("nan"), 3.0])',
    "3.0",
)
nanmin = _reduction(
    "nanmin",
    jnp.nanmin,
    "The smallest number along the axes.",
    'nanmin([1.0, float("nan"), 3.0])',
    "1.0",
)
nansum = _reduction(
    "nansum",
    jnp.nansum,
    "The sum along the axes, NaN counted as 0.",
    'nansum([1.0, float("nan"), 3.0])',
    "4.0",
)
nanprod = _reduction(
    "nanprod",
    jnp.nanprod,
    "The product along the axes, NaN counted as 1.",
    'nanprod([1.0, float("nan"), 3.0])',
    "3.0",
)


def _nanstd(x: jax.Array, axis: Axes = None, keepdims: bool = False) -> jax.Array:
    # the derivative of a square root at 0 is infinite: constant arrays have a gradient of 0 here
    return safe_sqrt(jnp.nanvar(x, axis=axes_of(axis), keepdims=keepdims))


nanmean = _reduction(
    "nanmean",
    jnp.nanmean,
    "The mean of the numbers along the axes.",
    'nanmean([1.0, float("nan"), 3.0])',
    "2.0",
)
nanvar = _reduction(
    "nanvar",
    jnp.nanvar,
    "The variance of the numbers along the axes.",
    'nanvar([1.0, float("nan"), 3.0])',
    "1.0",
)
nanstd = _reduction(
    "nanstd",
    _nanstd,
    "The standard deviation of the numbers on the axes.",
    'nanstd([1.0, float("nan"), 3.0])',
    "1.0",
)
nanmedian = _reduction(
    "nanmedian",
    jnp.nanmedian,
    "The median of the numbers along the axes.",
    'nanmedian([1.0, float("nan"), 3.0])',
    "2.0",
)
nancumsum = _running(
    "nancumsum",
    jnp.nancumsum,
    "Running sums, NaN counted as 0.",
    'nancumsum([1.0, float("nan"), 3.0])',
    "[1. 1. 4.]",
)
nancumprod = _running(
    "nancumprod",
    jnp.nancumprod,
    "Running products, NaN counted as 1.",
    'nancumprod([1.0, float("nan"), 3.0])',
    "[1. 1. 3.]",
)


@op
def nanquantile(
    x: TensorLike, q: TensorLike, axis: Axes = None, method: str = "linear", keepdims: bool = False
) -> jax.Array:
    """Returns the quantile `q` along the axes, ignoring NaN; see `quantile`.

    Args:
        q: a number from 0 to 1, or an array of numbers.
        method: interpolation between elements; see `quantile`.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.nanquantile([1.0, float("nan"), 3.0], 0.5))
        2.0
    """
    return jnp.nanquantile(
        to_array(x), jnp.asarray(q), axis=axes_of(axis), method=method, keepdims=keepdims
    )


@op
def nanpercentile(
    x: TensorLike, q: TensorLike, axis: Axes = None, method: str = "linear", keepdims: bool = False
) -> jax.Array:
    """Returns the percentile `q` along the axes, ignoring NaN; see `quantile`.

    Args:
        q: a number from 0 to 100, or an array of numbers.
        method: interpolation between elements; see `quantile`.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.nanpercentile([1.0, float("nan"), 3.0], 50))
        2.0
    """
    return jnp.nanpercentile(
        to_array(x), jnp.asarray(q), axis=axes_of(axis), method=method, keepdims=keepdims
    )
