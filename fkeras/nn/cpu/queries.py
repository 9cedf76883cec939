"""Products of attention with a single query, as in a step of decoding, for keys and values of many places."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.nn.cpu.forms import Form
from fkeras.nn.numerics.dtypes import wide_dtype

# the fewest numbers of a row, for each head of a group, for which elementwise computations are faster than a product
_LEAST = 1 << 18
# partial sums of a score, and places whose terms are added in one operation
_LANES, _PLACES = 16, 32


def has_many_places(array: Any, heads: int) -> bool:
    """Returns whether keys or values (b, t, g, d) are multiplied faster by elementwise computations.

    For a product, XLA's CPU compiler copies keys and values to arrays (b, g, t, d) and (b, g, d, t).

    Args:
        heads: the number of heads of a group.
    """
    if array.ndim != 4 or not all(isinstance(n, int) for n in array.shape):
        return False
    rows, places, _, width = array.shape
    divides = places % _PLACES == 0 and width % _LANES == 0 and rows > 0
    is_large = math.prod(array.shape[1:]) >= heads * _LEAST
    return divides and is_large and array.dtype == wide_dtype(array.dtype)


@dataclasses.dataclass(frozen=True)
class QueryScores(Form):
    """Scores (b, g, ..., 1, t) of a query (b, 1, g, ..., d) and keys (b, t, g, d), which are the operands.

    Args:
        equation: the einsum.
        precision: the precision of the product: a program may be lowered under another default.
    """

    linear: ClassVar[tuple[int, ...]] = (0, 1)
    rows: ClassVar[tuple[int, ...]] = (0, 1)

    equation: str
    precision: str | None = None

    def suits(self, *operands: Any) -> bool:
        query, keys = operands
        heads = math.prod(query.shape[3:-1])
        is_one = query.shape[1] == 1 and query.dtype == keys.dtype
        return is_one and has_many_places(keys, heads)

    def default(self, *operands: jax.Array) -> jax.Array:
        return jnp.einsum(self.equation, *operands, precision=self.precision)

    def transformed(self, *operands: jax.Array) -> jax.Array:
        return self.default(*operands)

    def fast(self, *operands: jax.Array) -> jax.Array:
        query, keys = operands
        rows, places, groups, width = keys.shape
        heads = query.shape[3:-1]
        query = query.reshape(rows, 1, groups, -1, width)
        # slices of the keys themselves: for those of a reshaped array, XLA copies the cache in each step
        cuts = [slice(n * _LANES, (n + 1) * _LANES) for n in range(width // _LANES)]
        y = sum(query[..., cut] * keys[..., cut][:, :, :, None] for cut in cuts)
        y = jnp.reshape(y, (-1, _LANES)) @ np.ones((_LANES, 1), keys.dtype)
        y = y.reshape(rows, places, -1).swapaxes(1, 2)
        return y.reshape(rows, groups, *heads, 1, places)


def query_means(weights: jax.Array, values: jax.Array) -> jax.Array:
    """Returns the sums (b, 1, g, ..., d) of values (b, t, g, d), weighted by numbers (b, g, ..., 1, t)."""
    rows, places, groups, width = values.shape
    steps, heads = places // _PLACES, weights.shape[2:-2]
    weights = weights.reshape(rows, groups, -1, steps, _PLACES).transpose(4, 0, 3, 1, 2)[..., None]
    y = sum(weights[n] * values[:, n::_PLACES, :, None] for n in range(_PLACES))
    y = jnp.matmul(np.ones((rows, 1, steps), values.dtype), jnp.reshape(y, (rows, steps, -1)))
    return y.reshape(rows, 1, groups, *heads, width)
