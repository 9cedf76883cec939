"""Spectrograms of signals: `STFTSpectrogram` with trainable kernels, `MelSpectrogram`."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.initializers.stft import as_window
from fkeras.layers.common import authoring as fk
from fkeras.nn.convolution import convolve_depthwise
from fkeras.nn.cpu.extremes import largest
from fkeras.nn.numerics.axes import channel_axis, check_window
from fkeras.nn.numerics.dtypes import wide_dtype
from fkeras.nn.numerics.stable import EPSILON
from fkeras.nn.signal import stft

# resource limit: the entries of a matrix that is compiled in or allocated as a kernel
_MATRIX = 1 << 26
_MODES = ("log", "magnitude", "psd", "real", "imag", "angle", "stft")


def _check_size(where: str, rows: int, fft_length: int) -> None:
    if rows * (fft_length // 2 + 1) > _MATRIX:
        raise ValueError(
            f"{where}: expected at most {_MATRIX} numbers in the matrix of {rows} rows and "
            f"fft_length={fft_length}. Give a shorter fft_length."
        )


class STFTSpectrogram(fk.Layer):
    """Computes the short-time Fourier transform of each channel by convolutions.

    The kernels are weights, initialized with windowed cosines and sines, and can be trained.

    Args:
        mode: "log", "magnitude" or "psd" (power) of the spectrum, its "real" or "imag" part, its
            "angle", or "stft" for the concatenated real and imaginary parts.
        frame_length: length of a frame.
        frame_step: distance between adjacent frames; None for half a frame.
        fft_length: length of the transform; None for the next power of two.
        window: name of a window, its values, or None for no window.
        periodic: whether a window given by name is periodic instead of symmetric.
        scaling: "density", "spectrum" or None: normalization of the window.
        padding: "valid" for frames inside the signal, "same" for ceil(t / frame_step) frames.
        expand_dims: whether frequencies have a separate axis.
        data_format: "channels_last" (also None) for signals (b, t, c), or "channels_first" for
            (b, c, t).

    Shapes:
        (b, t, c) -> (b, t2, c * f), or with `expand_dims` (b, t2, f, c); with "channels_first"
        (b, c * f, t2), or (b, c, t2, f). f is fft_length / 2 + 1, twice as many for "stft";
        real_kernel and imag_kernel (frame_length, 1, fft_length / 2 + 1).

    Raises:
        ValueError: for unknown strings, steps longer than a frame, and transforms shorter than a
            frame.
        TypeError: for an integer signal.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.STFTSpectrogram("magnitude", 8, 4)
        >>> layer = layer.build(jax.random.key(0), (None, 32, 1))
        >>> layer(jnp.ones((2, 32, 1))).shape
        (2, 7, 5)

    References:
        Allen and Rabiner, 1977, A unified approach to short-time Fourier analysis and synthesis.
    """

    mode: str = fk.option(default="log", convert=fk.choice(*_MODES))
    frame_length: fk.Integer = fk.option(default=256, convert=fk.integer(minimum=1))
    frame_step: fk.OptionalInteger = fk.option(
        default=None, convert=fk.integer(minimum=1, optional=True)
    )
    fft_length: fk.OptionalInteger = fk.option(
        default=None, convert=fk.integer(minimum=1, optional=True)
    )
    window: fk.Window = fk.option(default="hann", convert=as_window)
    periodic: bool = fk.option(default=False, convert=fk.boolean)
    scaling: str | None = fk.option(
        default="density", convert=fk.choice("density", "spectrum", optional=True)
    )
    padding: str = fk.option(default="valid", convert=fk.choice("valid", "same"))
    expand_dims: bool = fk.option(default=False, convert=fk.boolean)
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)

    real_kernel: jax.Array = fk.weight(axes="wio")
    imag_kernel: jax.Array = fk.weight(axes="wio")

    @property
    def axis_names(self) -> fk.AxisNames:
        return fk.AxisNames()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.frame_step is not None and self.frame_step > self.frame_length:
            raise ValueError(
                f"{self._where}: expected a frame_step of {self.frame_length} or less, the "
                f"frame_length, received {self.frame_step}. Longer steps skip parts of the signal."
            )
        if self.fft_length is not None and self.fft_length < self.frame_length:
            raise ValueError(
                f"{self._where}: expected an fft_length of {self.frame_length} or more, the "
                f"frame_length, received {self.fft_length}. A frame must fit into the transform."
            )
        _check_size(self._where, self.frame_length, self.fft_length or 2 * self.frame_length)
        self.real_kernel_initializer  # noqa: B018  (checks window and scaling)

    @property
    def real_kernel_initializer(self) -> Any:
        return fk.initializers.STFT("real", self.window, self.scaling, self.periodic)

    @property
    def imag_kernel_initializer(self) -> Any:
        return fk.initializers.STFT("imag", self.window, self.scaling, self.periodic)

    @property
    def input_spec(self) -> fk.InputSpec:
        return fk.InputSpec(ndim=3)

    def build(self, key: jax.Array, x: fk.SpecLike) -> Self:
        length = self.fft_length or 2 ** math.ceil(math.log2(self.frame_length))
        shape = (self.frame_length, 1, length // 2 + 1)
        return self.with_weights(
            key,
            real_kernel=None if self.mode == "imag" else shape,
            imag_kernel=None if self.mode == "real" else shape,
        )

    def call(self, x: jax.Array) -> jax.Array:
        if not jnp.issubdtype(x.dtype, jnp.floating):
            raise TypeError(
                f"{self._where}: expected a signal of floating point numbers, received {x.dtype}. "
                "Convert it: x.astype('float32')."
            )
        if self.padding == "valid":
            extent = (self.frame_length,)
            check_window(self._where, x, extent, "frame_length", self.data_format)
        x = jnp.moveaxis(x, channel_axis(self.data_format), -1)
        y = self._spectrum(x)  # (b, t, c, f)
        if self.expand_dims:
            order = (0, 1, 3, 2) if self.data_format == "channels_last" else (0, 2, 1, 3)
            return jnp.transpose(y, order)
        y = jnp.reshape(y, (*y.shape[:2], y.shape[2] * y.shape[3]))
        return y if self.data_format == "channels_last" else jnp.swapaxes(y, 1, 2)

    def _spectrum(self, x: jax.Array) -> jax.Array:
        match self.mode:
            case "real":
                return self._convolve(x, self.real_kernel)
            case "imag":
                return self._convolve(x, self.imag_kernel)
        real, imag = self._convolve(x, self.real_kernel), self._convolve(x, self.imag_kernel)
        match self.mode:
            case "stft":
                return jnp.concatenate([real, imag], axis=-1)
            case "angle":
                return jnp.arctan2(imag, real)
        power = jnp.square(real) + jnp.square(imag)
        if self.mode == "psd":  # inner frequencies represent two: the positive and the negative
            return power + jnp.pad(power[..., 1:-1], ((0, 0), (0, 0), (0, 0), (1, 1)))
        # the lower bound keeps the derivative of the root finite in silence
        magnitude = jnp.sqrt(jnp.maximum(power, EPSILON))
        return magnitude if self.mode == "magnitude" else jnp.log(jnp.maximum(magnitude, EPSILON))

    def _convolve(self, x: jax.Array, kernel: jax.Array | None) -> jax.Array:
        assert kernel is not None  # `build` makes the kernels that the mode reads
        channels = x.shape[-1]
        kernels = jnp.broadcast_to(kernel, (kernel.shape[0], channels, kernel.shape[2]))
        step = self.frame_step or self.frame_length // 2
        y = convolve_depthwise(x, kernels.astype(x.dtype), (step,), self.padding)
        return jnp.reshape(y, (*y.shape[:2], channels, kernel.shape[2]))


def mel_weights(
    num_mel_bins: int, num_bins: int, sampling_rate: float, min_freq: float, max_freq: float
) -> np.ndarray:
    """Returns the weights of frequencies in triangular bands of equal width on the mel scale.

    Args:
        num_bins: number of frequencies, from 0 to half the sampling rate.
        max_freq: upper end of the highest band, in hertz.

    Returns:
        An array of shape (num_bins, num_mel_bins).
    """
    frequencies = _mel(np.linspace(0.0, sampling_rate / 2, num_bins))[:, None]
    edges = np.linspace(_mel(np.float64(min_freq)), _mel(np.float64(max_freq)), num_mel_bins + 2)
    low, center, high = edges[None, :-2], edges[None, 1:-1], edges[None, 2:]
    rising = (frequencies - low) / (center - low)
    falling = (high - frequencies) / (high - center)
    weights = np.maximum(0.0, np.minimum(rising, falling))
    weights[0] = 0.0  # frequency 0, the mean of the signal, belongs to no band
    return weights


def _mel(hertz: Any) -> Any:
    return 1127.0 * np.log1p(hertz / 700.0)


class MelSpectrogram(fk.Layer):
    """Computes the power of signals in bands of the mel scale, which models perceived pitch.

    `top_db` is relative to the maximum of each signal. In Keras 3.15 it is relative to the maximum
    of the whole batch, so that the result for a signal depends on the other signals.

    Args:
        fft_length: length of the transform.
        sequence_stride: distance between adjacent frames.
        sequence_length: length of the window; None for `fft_length`.
        window: "hann", "hamming", numbers, or None.
        sampling_rate: samples of the signal per second.
        num_mel_bins: number of bands.
        min_freq: lower end of the lowest band, in hertz.
        max_freq: upper end of the highest band; None for half the sampling rate.
        power_to_db: whether to convert powers to decibels.
        top_db: largest difference below the maximum of a signal, in decibels.
        mag_exp: exponent of the magnitudes: 2 for powers, 1 for magnitudes.
        min_power: lower limit of the power.
        ref_power: power that corresponds to 0 decibels.

    Shapes:
        (b, t) -> (b, num_mel_bins, frames), (t,) -> (num_mel_bins, frames), where frames is
        t // sequence_stride + 1 for an even `fft_length`.

    Raises:
        ValueError: for a window longer than the transform.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.MelSpectrogram(64, 32, num_mel_bins=8)
        >>> layer(jnp.sin(jnp.arange(256.0))[None]).shape
        (1, 8, 9)

    References:
        Stevens, Volkmann and Newman, 1937, A scale for the measurement of the psychological
        magnitude pitch.
    """

    fft_length: fk.Integer = fk.option(default=2048, convert=fk.integer(minimum=1))
    sequence_stride: fk.Integer = fk.option(default=512, convert=fk.integer(minimum=1))
    sequence_length: fk.Converted[fk.AnyInteger | None, int] = fk.option(
        default=None, convert=fk.integer(minimum=1, optional=True)
    )
    window: fk.Window = fk.option(default="hann", convert=as_window)
    sampling_rate: fk.Real = fk.option(default=16000, convert=fk.real(above=0))
    num_mel_bins: fk.Integer = fk.option(default=128, convert=fk.integer(minimum=1))
    min_freq: fk.Real = fk.option(default=20.0, convert=fk.real(minimum=0))
    max_freq: fk.Converted[fk.AnyReal | None, float] = fk.option(
        default=None, convert=fk.real(above=0, optional=True)
    )
    power_to_db: bool = fk.option(default=True, convert=fk.boolean)
    top_db: fk.Real = fk.option(default=80.0, convert=fk.real(above=0))
    mag_exp: fk.Real = fk.option(default=2.0, convert=fk.real(above=0))
    min_power: fk.Real = fk.option(default=1e-10, convert=fk.real(above=0))
    ref_power: fk.Real = fk.option(default=1.0, convert=fk.real(above=0))

    _autocast: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        # resolved defaults, as in Keras's config: a layer then equals its reconstruction
        object.__setattr__(self, "sequence_length", self.sequence_length or self.fft_length)
        object.__setattr__(self, "max_freq", self.max_freq or int(self.sampling_rate / 2))
        if self.sequence_length > self.fft_length:
            raise ValueError(
                f"{self._where}: expected a sequence_length of {self.fft_length} or less, the "
                f"fft_length, received {self.sequence_length}. The window must fit into the "
                "transform."
            )
        _check_size(self._where, max(self.num_mel_bins, 16), self.fft_length)

    def call(self, x: jax.Array) -> jax.Array:
        x = x.astype(wide_dtype(jnp.dtype(self.policy.compute_dtype)))
        window = self.window
        window = window if window is None or isinstance(window, str) else np.asarray(window)
        spectrum = stft(x, self.sequence_length, self.sequence_stride, self.fft_length, window)
        power = jnp.square(spectrum[0]) + jnp.square(spectrum[1])
        if self.mag_exp != 2:
            silent = power == 0  # the root of 0 has an infinite derivative
            root = jnp.where(silent, 1, power) ** (self.mag_exp / 2)
            power = jnp.where(silent, 0, root)
        bands = mel_weights(
            self.num_mel_bins,
            self.fft_length // 2 + 1,
            self.sampling_rate,
            self.min_freq,
            self.max_freq,
        )
        y = jnp.swapaxes(power @ jnp.asarray(bands, x.dtype), -1, -2)
        return (self._decibels(y) if self.power_to_db else y).astype(self.policy.compute_dtype)

    def _decibels(self, y: jax.Array) -> jax.Array:
        reference = 10.0 * math.log10(max(abs(self.ref_power), self.min_power))
        y = 10.0 * jnp.log10(jnp.maximum(y, self.min_power)) - reference
        return jnp.maximum(y, largest(y, (-2, -1), keepdims=True) - self.top_db)
