"""Window functions for signal processing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from fkeras.engine.symbolic.define import described, op
from fkeras.engine.symbolic.operation import Op

__all__ = (
    "bartlett",
    "blackman",
    "hamming",
    "hanning",
    "kaiser",
)


if TYPE_CHECKING:

    class _Window(Op[...]):
        def __call__(self, x: int, *, name: str | None = None) -> jax.Array: ...

else:
    _Window = Op


def _window(
    name: str, function: Callable[[int], jax.Array], doc: str, example: str, shown: str
) -> _Window:
    def window(x: int) -> jax.Array:
        # Keras's dtype, also if x64 is enabled
        return function(x).astype("float32")

    window.__doc__ = described(doc, "x: how many numbers.", example, shown)
    return _Window(name, window)


bartlett = _window(
    "bartlett",
    jnp.bartlett,
    "A Bartlett window of x numbers, a triangle.",
    "bartlett(5)",
    "[0.  0.5 1.  0.5 0. ]",
)
blackman = _window(
    "blackman",
    jnp.blackman,
    "A Blackman window of x numbers, a sum of three cosines.",
    "blackman(5)[1:4].round(2)",
    "[0.34 1.   0.34]",
)
hamming = _window(
    "hamming",
    jnp.hamming,
    "A Hamming window of x numbers, 0.54 - 0.46 cos(t).",
    "hamming(3).round(2)",
    "[0.08 1.   0.08]",
)
hanning = _window(
    "hanning",
    jnp.hanning,
    "A Hann window of x numbers, 0.5 - 0.5 cos(t).",
    "hanning(5).round(2)",
    "[0.  0.5 1.  0.5 0. ]",
)


@op
def kaiser(x: int, beta: float) -> jax.Array:
    """Returns a Kaiser window, computed from a Bessel function.

    Args:
        x: number of points.
        beta: shape parameter: 0 gives a rectangle, larger values a narrower window.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.kaiser(3, 2.0).round(2))
        [0.44 1.   0.44]
    """
    return jnp.kaiser(x, beta).astype("float32")
