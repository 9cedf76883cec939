"""Reductions that leave out NaN."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from fkeras.engine.operation import Op
from fkeras.ops._define import op, to_array
from fkeras.ops.reductions import axes_of

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


def _reduction(name: str, function: Any, doc: str) -> Op:
    def reduce(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return function(to_array(x), axis=axes_of(axis), keepdims=keepdims)

    reduce.__doc__ = doc
    return Op(name, reduce)


def _running(name: str, function: Any, doc: str) -> Op:
    def accumulate(x: Any, axis: int | None = None, dtype: Any = None) -> Any:
        return function(to_array(x), axis=axis, dtype=dtype)

    accumulate.__doc__ = doc
    return Op(name, accumulate)


nanargmax = _reduction("nanargmax", jnp.nanargmax, "The index of the largest number on an axis.")
nanargmin = _reduction("nanargmin", jnp.nanargmin, "The index of the least number on an axis.")
nanmax = _reduction("nanmax", jnp.nanmax, "The largest number along the axes.")
nanmin = _reduction("nanmin", jnp.nanmin, "The least number along the axes.")
nansum = _reduction("nansum", jnp.nansum, "The sum along the axes, NaN counted as 0.")
nanprod = _reduction("nanprod", jnp.nanprod, "The product along the axes, NaN counted as 1.")
nanmean = _reduction("nanmean", jnp.nanmean, "The mean of the numbers along the axes.")
nanvar = _reduction("nanvar", jnp.nanvar, "The variance of the numbers along the axes.")
nanstd = _reduction("nanstd", jnp.nanstd, "The standard deviation of the numbers on the axes.")
nanmedian = _reduction("nanmedian", jnp.nanmedian, "The median of the numbers along the axes.")
nancumsum = _running("nancumsum", jnp.nancumsum, "Running sums, NaN counted as 0.")
nancumprod = _running("nancumprod", jnp.nancumprod, "Running products, NaN counted as 1.")


@op
def nanquantile(
    x: Any, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False
) -> Any:
    """The quantile `q` of the numbers along the axes; see `quantile`."""
    return jnp.nanquantile(
        to_array(x), jnp.asarray(q), axis=axes_of(axis), method=method, keepdims=keepdims
    )


@op
def nanpercentile(
    x: Any, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False
) -> Any:
    """The percentile `q` of the numbers along the axes; see `quantile`."""
    return jnp.nanpercentile(
        to_array(x), jnp.asarray(q), axis=axes_of(axis), method=method, keepdims=keepdims
    )
