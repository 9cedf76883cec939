"""The initializer `STFT`: a short-time Fourier transform as a convolution kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine.config.configurable import option
from fkeras.engine.config.converters import boolean, choice, numeric
from fkeras.engine.config.field_types import Window
from fkeras.engine.values.argument_types import DTypeLike
from fkeras.engine.values.registry import named
from fkeras.initializers.initializer import Initializer


def window_values(name: str, length: int, periodic: bool = False) -> np.ndarray:
    """Returns the values of a window function at the points of a frame.

    Args:
        name: a window of `scipy.signal.get_window` that needs no parameter.
        periodic: whether the window is periodic: the point after the last equals the first point.

    Raises:
        ValueError: for an unknown window, or a window with parameters.
    """
    from scipy.signal import get_window  # here: importing SciPy's signal package takes 0.5 s

    try:
        return np.asarray(get_window(name, length, fftbins=periodic))
    except ValueError:
        raise ValueError(
            "expected the name of a window of scipy.signal.get_window that needs no parameter, "
            f"received {name!r}. Use a window such as 'hann', or pass the numbers of the window."
        ) from None


_numbers = numeric(optional=True, hint="Give the name of a window such as 'hann', or its numbers.")


def as_window(window: Any) -> Any:
    if not isinstance(window, str):
        return _numbers(window)
    window_values(window, 2)
    return window


class STFT(Initializer):
    """Creates cos or sin of -2 * pi * time * frequency, times a window, as a convolution kernel.

    The kernel has the shape (frame, 1, frequencies).

    Args:
        side: "real" for cosines, "imag" for sines.
        window: the name of a window function, as in `window_values`, the window's values, or None.
        scaling: "density" to divide by the root of the sum of the squared window values,
            "spectrum" to divide by the sum of their absolute values; None for no scaling.
        periodic: whether the window function is periodic.

    Raises:
        ValueError: for an unknown option, a weight without exactly three axes, or a window whose
            length differs from the frame's length.

    Example:
        >>> import jax
        >>> STFT("real", None)(jax.random.key(0), (2, 1, 2))[:, 0].round(2)
        Array([[ 1.,  1.],
               [ 1., -1.]], dtype=float32)
    """

    side: str = option(default="real", convert=choice("real", "imag"))
    window: Window = option(default="hann", convert=as_window)
    scaling: str | None = option(
        default="density", convert=choice("density", "spectrum", optional=True)
    )
    periodic: bool = option(default=False, convert=boolean)

    def __call__(
        self, key: jax.Array, shape: Sequence[int], dtype: DTypeLike = "float32"
    ) -> jax.Array:
        if len(shape) != 3:
            raise ValueError(
                f"STFT: expected a kernel (frame, channels, frequencies), received the shape "
                f"{tuple(shape)}. Use it for weights of three axes."
            )
        frame, _, frequencies = shape
        # NumPy computes in float64: float32 angles of long frames would be inaccurate
        cycles = np.arange(frame)[:, None] * (np.arange(frequencies) / max(2 * frequencies - 2, 1))
        angle = -2.0 * math.pi * cycles
        kernel = np.cos(angle) if self.side == "real" else np.sin(angle)
        if self.window is not None:
            kernel = kernel * self._weights(frame)[:, None]
        broadcast = np.broadcast_to(kernel[:, None, :], tuple(shape))
        return jax.device_put(broadcast.astype(jnp.dtype(dtype)))

    def _weights(self, frame: int) -> np.ndarray:
        """Returns the window's values after scaling."""
        if isinstance(self.window, str):
            window = window_values(self.window, frame, self.periodic)
        else:
            window = np.asarray(self.window, "float64")
        if window.shape != (frame,):
            raise ValueError(
                f"STFT: expected a window of {frame} numbers, received shape {window.shape}. "
                "Give one number for each point of a frame."
            )
        if self.scaling == "density":
            return window / np.sqrt(np.sum(np.square(window)))
        if self.scaling == "spectrum":
            return window / np.sum(np.abs(window))
        return window


INITIALIZERS = (named(STFT, "stft", "STFTInitializer"),)
