"""Dtypes of sums and statistics."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp


def wide_dtype(dtype: Any) -> jnp.dtype:
    """Returns the dtype for statistics of `dtype` values: float64 for float64, else float32."""
    return jnp.dtype("float64" if jnp.dtype(dtype) == jnp.dtype("float64") else "float32")
