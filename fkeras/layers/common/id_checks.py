"""Checks of ids outside of compiled programs, where values are concrete."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fkeras.layers.common import authoring as fk


def reject_fractions(ids: fk.Leaf, where: str) -> None:
    """Rejects ids with fractions; accepts traced arrays and values that are not arrays.

    Raises:
        TypeError: for complex numbers.
        ValueError: for a fraction, infinity or NaN.
    """
    # a compiled program cannot raise an error for values; its result for fractions is NaN
    if not fk.is_array_like(ids) or isinstance(ids, Tracer):
        return
    ids = fk.read_array(ids, where, complex_numbers=True)
    if jnp.issubdtype(ids.dtype, jnp.complexfloating):
        raise TypeError(
            f"{where}: expected integer ids, received an array of {ids.dtype}. Pass integers: "
            "ids.real.astype('int32')."
        )
    if not jnp.issubdtype(ids.dtype, jnp.floating):
        return
    # copies to the host: only for float ids outside of jit
    values = np.asarray(ids)
    is_integer = np.isfinite(values) & (values == np.floor(values))
    if not is_integer.all():
        index = tuple(map(int, np.argwhere(~is_integer)[0]))
        raise ValueError(
            f"{where}: expected integer ids, received {values[index]} at {list(index)}. Round "
            "them, or pass integers: ids.astype('int32')."
        )
