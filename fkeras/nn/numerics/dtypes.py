"""The dtype that sums and statistics are taken in."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp


def wide_dtype(dtype: Any) -> jnp.dtype:
    """float64 for float64, else float32: what holds the statistics of values of `dtype`.

    Example:
        >>> wide_dtype("bfloat16")
        dtype('float32')
    """
    return jnp.dtype("float64" if jnp.dtype(dtype) == jnp.dtype("float64") else "float32")
