"""`AbsMaxQuantizer`: codes whose scale is that of the greatest magnitude."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fkeras.engine.config import Configurable, option
from fkeras.quantizers.codes import abs_max_quantize


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _range(value: Any) -> tuple[int, int]:
    pair = tuple(value) if isinstance(value, list | tuple) else ()
    if len(pair) != 2 or not all(map(is_whole, pair)) or not -128 <= pair[0] < pair[1] <= 127:
        raise ValueError(
            "AbsMaxQuantizer: value_range: expected two whole numbers from -128 to 127, the "
            f"smaller one first, received {value!r:.60}. For 8 bits: (-127, 127)."
        )
    if pair[1] <= 0:
        raise ValueError(
            f"AbsMaxQuantizer: value_range: expected a greatest code above 0, received {pair}. The "
            "greatest magnitude is coded as it."
        )
    return int(pair[0]), int(pair[1])


def _small(value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value < 1:
        raise ValueError(
            f"AbsMaxQuantizer: epsilon: expected a number between 0 and 1, received {value!r}. It "
            "keeps the scale of zeros finite: 1e-7."
        )
    return float(value)


def _axes(value: Any) -> tuple[int, ...] | None:
    axes = (value,) if is_whole(value) else value
    if axes is not None and not (isinstance(axes, list | tuple) and all(map(is_whole, axes))):
        raise ValueError(
            f"AbsMaxQuantizer: axis: expected a whole number, several or None, received {value!r}. "
            "None leaves it to the layer."
        )
    return None if axes is None else tuple(map(int, axes))


def _int8(value: Any) -> str:
    if value != "int8":
        raise ValueError(
            f"AbsMaxQuantizer: output_dtype: expected 'int8', received {value!r}. Codes of 4 bits "
            "are int8 too: set value_range=(-8, 7)."
        )
    return "int8"


class AbsMaxQuantizer(Configurable):
    """Computes `round(x * scale)` with `scale = value_range[1] / max(|x|)` along some axes.

    Args:
        axis: the axes that share one scale where the call names none; None for the last one. A
            layer names the axes that it sums over.
        value_range: the least and the greatest code.
        epsilon: is added to the maximum.
        output_dtype: "int8".

    Raises:
        ValueError: for a range beyond int8, or no range.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> codes, scale = fk.quantizers.AbsMaxQuantizer()(jnp.array([[0.5, -1.0]]))
        >>> codes, scale.round(2)
        (array([[  63, -127]], dtype=int8), array([[127.]], dtype=float32))
    """

    keras_module: ClassVar[str] = "keras.quantizers"
    axis: tuple[int, ...] | None = option(None, convert=_axes)
    value_range: tuple[int, int] = option((-127, 127), convert=_range)
    epsilon: float = option(1e-7, convert=_small)
    output_dtype: str = option("int8", convert=_int8)

    def __call__(self, x: Any, axis: Any = None) -> tuple[Any, Any]:
        """Codes and scale, which has size 1 along the axes."""
        axis = self.axis if axis is None else axis
        axis = -1 if axis is None else axis
        return abs_max_quantize(x, axis, self.value_range, self.output_dtype, self.epsilon)
