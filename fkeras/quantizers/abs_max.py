"""`AbsMaxQuantizer`: integer codes with a scale from the maximum magnitude."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import numpy as np

from fkeras.engine.config.configurable import Configurable, option
from fkeras.engine.config.converters import axes, choice, integer, real, several
from fkeras.engine.config.field_types import DTypeName, OptionalSizes, Real
from fkeras.engine.messages.errors import describe_value
from fkeras.quantizers.codes import abs_max_quantize

_codes = several(integer(minimum=-128, maximum=127), "two integers from -128 to 127")


def _range(value: object) -> tuple[int, ...]:
    pair = _codes(value)
    if len(pair) != 2 or pair[0] >= pair[1]:
        raise ValueError(
            "expected two integers from -128 to 127, the smaller first, received "
            f"{describe_value(value)}. For 8 bits: (-127, 127)."
        )
    # the scale is the largest code divided by the maximum magnitude
    if pair[1] <= 0:
        raise ValueError(
            f"expected an upper bound above 0, received {pair}. The upper bound is the code of the "
            "largest magnitude."
        )
    return pair


_some_axes = axes(optional=True, hint="With None the layer chooses.")


def _axes(value: object) -> tuple[int, ...] | None:
    channel_axes = _some_axes(value)
    return (channel_axes,) if isinstance(channel_axes, int) else channel_axes


_int8 = choice("int8", hint="Codes of 4 bits are int8 too: set value_range=(-8, 7).")


class AbsMaxQuantizer(Configurable):
    """Computes `round(x * scale)` with `scale = value_range[1] / max(|x|)` along some axes.

    Args:
        axis: the axes that share one scale if the call passes no axes; None for the last axis.
            Layers pass the axes that they sum over.
        value_range: the smallest and the largest code.
        epsilon: the number added to the maximum, which keeps the scale of zeros finite.
        output_dtype: "int8".

    Raises:
        ValueError: for a `value_range` that is not an ascending pair in int8's range.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> codes, scale = fk.quantizers.AbsMaxQuantizer()(jnp.array([[0.5, -1.0]]))
        >>> codes, scale.round(2)
        (array([[  63, -127]], dtype=int8), array([[127.]], dtype=float32))
    """

    _keras_module: ClassVar[str] = "keras.quantizers"
    axis: OptionalSizes = option(default=None, convert=_axes)
    value_range: tuple[int, int] = option(default=(-127, 127), convert=_range)
    epsilon: Real = option(default=1e-7, convert=real(above=0, below=1))
    output_dtype: DTypeName = option(default="int8", convert=_int8)

    def __call__(
        self, x: jax.Array | np.ndarray, axis: int | tuple[int, ...] | None = None
    ) -> tuple[Any, Any]:
        """Returns the codes, and the scale with size 1 along the axes."""
        axis = self.axis if axis is None else axis
        axis = -1 if axis is None else axis
        return abs_max_quantize(x, axis, self.value_range, self.output_dtype, self.epsilon)
