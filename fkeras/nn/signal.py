"""Signal processing: frames, Fourier transforms, windows, spectrograms and their inverses.

Complex arrays are passed and returned as pairs `(real, imaginary)`, as in Keras.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from fkeras.nn.numerics.array_types import Numbers, NumbersPair

Pair = tuple[jax.Array, jax.Array]
# resource limit of the length of a window, which is compiled in as a constant
_LONGEST = 1 << 24


def extract_sequences(x: Numbers, sequence_length: int, sequence_stride: int) -> jax.Array:
    """Extracts frames of equal length from the last axis, at equal distances.

    Args:
        x: (..., t).
        sequence_length: length of a frame.
        sequence_stride: distance between the starts of adjacent frames.

    Returns:
        An array of shape (..., n, sequence_length), without steps after the last full frame.

    Raises:
        ValueError: if the stride is not positive.

    Example:
        >>> import jax.numpy as jnp
        >>> extract_sequences(jnp.arange(5), 3, 2).tolist()
        [[0, 1, 2], [2, 3, 4]]
    """
    x = jnp.asarray(x)
    _check_stride("extract_sequences", sequence_stride)
    count = (x.shape[-1] - sequence_length) // sequence_stride + 1
    starts = jnp.arange(count, dtype="int32")[:, None] * sequence_stride
    return jnp.take(x, starts + jnp.arange(sequence_length, dtype="int32")[None, :], axis=-1)


def overlap_add(frames: jax.Array, sequence_stride: int) -> jax.Array:
    """Adds frames that overlap by `length - sequence_stride` steps.

    Args:
        frames: (..., n, length).

    Returns:
        An array of shape (..., length + (n - 1) * sequence_stride).
    """
    *batch, count, length = frames.shape
    pieces = -(-length // sequence_stride)
    no_padding = [(0, 0)] * len(batch)
    rows = jnp.pad(frames, [*no_padding, (0, 0), (0, pieces * sequence_stride - length)])
    rows = jnp.reshape(rows, (*batch, count, pieces, sequence_stride))
    rows = jnp.swapaxes(rows, -3, -2)
    # padding rows, and cutting one piece per row from the flat array, shifts row j by j pieces: a
    # scatter-add, without a scatter
    rows = jnp.pad(rows, [*no_padding, (0, 0), (0, pieces), (0, 0)])
    rows = jnp.reshape(rows, (*batch, pieces * (count + pieces), sequence_stride))
    rows = rows[..., : pieces * (count + pieces - 1), :]
    rows = jnp.reshape(rows, (*batch, pieces, count + pieces - 1, sequence_stride))
    flat = jnp.reshape(jnp.sum(rows, axis=-3), (*batch, (count + pieces - 1) * sequence_stride))
    return flat[..., : length + (count - 1) * sequence_stride]


def fft(x: NumbersPair) -> Pair:
    """Computes the discrete Fourier transform along the last axis.

    Args:
        x: a pair of real and imaginary parts, each (..., n).

    Returns:
        Real and imaginary parts, each (..., n).

    Raises:
        ValueError: unless x is a pair of floating arrays of the same shape.

    Example:
        >>> import jax.numpy as jnp
        >>> real, imaginary = fft((jnp.ones(4), jnp.zeros(4)))
        >>> real.tolist()
        [4.0, 0.0, 0.0, 0.0]
    """
    return _parts(jnp.fft.fft(_complex("fft", x)))


def fft2(x: NumbersPair) -> Pair:
    """Computes the discrete Fourier transform along the last two axes.

    Args:
        x: a pair of real and imaginary parts, each (..., h, w).

    Returns:
        Real and imaginary parts, each (..., h, w).

    Raises:
        ValueError: unless x is a pair of floating arrays of the same shape.

    Example:
        >>> import jax.numpy as jnp
        >>> fft2((jnp.ones((2, 2)), jnp.zeros((2, 2))))[0].tolist()
        [[4.0, 0.0], [0.0, 0.0]]
    """
    return _parts(jnp.fft.fft2(_complex("fft2", x)))


def ifft2(x: NumbersPair) -> Pair:
    """Computes the inverse discrete Fourier transform along the last two axes.

    Args:
        x: a pair of real and imaginary parts, each (..., h, w).

    Returns:
        Real and imaginary parts, each (..., h, w).

    Raises:
        ValueError: unless x is a pair of floating arrays of the same shape.

    Example:
        >>> import jax.numpy as jnp
        >>> ifft2((jnp.ones((2, 2)), jnp.zeros((2, 2))))[0].tolist()
        [[1.0, 0.0], [0.0, 0.0]]
    """
    return _parts(jnp.fft.ifft2(_complex("ifft2", x)))


def rfft(x: Numbers, fft_length: int | None = None) -> Pair:
    """Computes the discrete Fourier transform of real numbers along the last axis.

    Args:
        x: (..., n).
        fft_length: length to which the axis is first cut, or padded with zeros.

    Returns:
        Real and imaginary parts of the non-negative frequencies, (..., fft_length // 2 + 1).

    Example:
        >>> import jax.numpy as jnp
        >>> real, imaginary = rfft(jnp.array([1.0, 0.0, 0.0, 0.0]))
        >>> real.tolist(), imaginary.tolist()
        ([1.0, 1.0, 1.0], [0.0, 0.0, 0.0])
    """
    return _parts(jnp.fft.rfft(jnp.asarray(x), n=fft_length))


def irfft(x: NumbersPair, fft_length: int | None = None) -> jax.Array:
    """Computes the real array whose `rfft` is x.

    Args:
        x: a pair of real and imaginary parts, each (..., n).
        fft_length: length of the result; None for 2 * (n - 1).

    Returns:
        An array of shape (..., fft_length).

    Raises:
        ValueError: unless x is a pair of floating arrays of the same shape.

    Example:
        >>> import jax.numpy as jnp
        >>> irfft((jnp.ones(3), jnp.zeros(3))).tolist()
        [1.0, 0.0, 0.0, 0.0]
    """
    return jnp.fft.irfft(_complex("irfft", x), n=fft_length)


def window_of(
    window: str | Numbers | None, sequence_length: int, fft_length: int, dtype: DTypeLike
) -> jax.Array:
    """Returns a window of `sequence_length` numbers, padded with zeros up to `fft_length`.

    Args:
        window: "hann" or "hamming", in the periodic form used for spectra; an array of
            `sequence_length` numbers; or None for ones over all of `fft_length`.

    Raises:
        ValueError: for an unknown name, or a wrong length of an array.

    Example:
        >>> window_of("hann", 4, 4, "float32").tolist()
        [0.0, 0.5, 1.0, 0.5]
    """
    if window is None:
        return jnp.ones(fft_length, dtype)
    if sequence_length > _LONGEST:
        raise ValueError(
            f"window: expected at most {_LONGEST} steps in a sequence, received {sequence_length}. "
            "Its numbers are compiled in as constants: give shorter sequences, or window=None."
        )
    if isinstance(window, str):
        offsets = {"hann": 0.5, "hamming": 0.54}
        if window not in offsets:
            raise ValueError(
                f"window: expected 'hann', 'hamming', None or an array, received {window!r}. For "
                "another window pass its values."
            )
        offset = offsets[window]
        angles = 2 * np.pi * np.arange(sequence_length) / sequence_length
        numbers = offset - (1 - offset) * np.cos(angles) if sequence_length > 1 else np.ones(1)
        window = numbers
    window = jnp.asarray(window, dtype)
    if window.shape != (sequence_length,):
        raise ValueError(
            f"window: expected {sequence_length} numbers, one for each step of a sequence, "
            f"received the shape {window.shape}. Give as many as sequence_length."
        )
    before = (fft_length - sequence_length) // 2
    return jnp.pad(window, (before, fft_length - sequence_length - before))


def stft(
    x: Numbers,
    sequence_length: int,
    sequence_stride: int,
    fft_length: int,
    window: str | Numbers | None = "hann",
    center: bool = True,
) -> Pair:
    """Computes the short-time Fourier transform: the spectra of windowed frames of a signal.

    Args:
        x: real numbers, (..., t).
        sequence_length: length of the window.
        sequence_stride: distance between the starts of adjacent frames.
        fft_length: length of the transform, `sequence_length` or more.
        window: "hann", "hamming", an array of `sequence_length` numbers, or None.
        center: whether frames are centered on their steps; both ends are then reflected.

    Returns:
        Real and imaginary parts, each (..., frames, fft_length // 2 + 1).

    Raises:
        ValueError: if the stride is not positive, or the transform is shorter than the window.
        TypeError: if the signal has an integer dtype.

    Example:
        >>> import jax.numpy as jnp
        >>> real, imaginary = stft(jnp.ones(8), 4, 4, 4, window=None, center=False)
        >>> real.tolist()
        [[4.0, 0.0, 0.0], [4.0, 0.0, 0.0]]
    """
    x = jnp.asarray(x)
    _check_stride("stft", sequence_stride)
    if fft_length < sequence_length:
        raise ValueError(
            f"stft: expected fft_length of {sequence_length} or more, the sequence_length, received "
            f"{fft_length}. A frame must fit into the transform."
        )
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(
            f"stft: expected a signal of floating point numbers, received {x.dtype}. Convert it: "
            "x.astype('float32')."
        )
    if center:
        x = _reflected(x, fft_length // 2)
    weights = window_of(window, sequence_length, fft_length, x.dtype)
    frames = extract_sequences(x, fft_length, sequence_stride)
    weights = jnp.reshape(weights, (1,) * (frames.ndim - 1) + (fft_length,))
    return rfft(frames * weights, fft_length)


def _reflected(x: jax.Array, count: int) -> jax.Array:
    """Extends a signal at both ends by `count` steps of its reflection, as `jnp.pad` does.

    One gather takes signals of an unknown length, too, and any number of reflections.
    """
    steps = x.shape[-1]
    last = steps - 1
    places = jnp.arange(-count, count + steps, dtype="int32")
    # the reflections are a triangle wave with the period 2 * last; a single step has period 0
    wave = jnp.abs(places) % jnp.maximum(2 * last, 1)
    return jnp.take(x, jnp.where(wave > last, 2 * last - wave, wave), axis=-1, mode="clip")


def istft(
    x: NumbersPair,
    sequence_length: int,
    sequence_stride: int,
    fft_length: int,
    length: int | None = None,
    window: str | Numbers | None = "hann",
    center: bool = True,
) -> jax.Array:
    """Inverts the short-time Fourier transform by least squares.

    The arguments are those of `stft`. The result is the inverse of `stft` with `window=None`, too;
    Keras 3.15's result is then larger by the factor fft_length / sequence_stride.

    Args:
        x: a pair of real and imaginary parts, each (..., frames, fft_length // 2 + 1).
        sequence_length: length of the window.
        sequence_stride: distance between the starts of adjacent frames.
        fft_length: length of the transform.
        length: length of the signal; None for the length that the frames cover.
        window: the window of the forward transform.
        center: whether the frames are centered on their steps.

    Returns:
        An array of shape (..., length).

    Raises:
        ValueError: if the stride is not positive, or the parts have fewer than two axes.

    Example:
        >>> import jax.numpy as jnp
        >>> x = jnp.sin(jnp.arange(32.0))
        >>> bool(jnp.allclose(istft(stft(x, 8, 4, 8), 8, 4, 8), x, atol=1e-5))
        True
    """
    _check_stride("istft", sequence_stride)
    frames = irfft(x, fft_length)
    if frames.ndim < 2:
        raise ValueError(
            f"istft: expected parts of shape (..., frames, frequencies), received {jnp.asarray(x[0]).shape}. "
            "Give a single frame a first axis: x[None]."
        )
    weights = window_of(window, sequence_length, fft_length, frames.dtype)
    row = jnp.reshape(weights, (1,) * (frames.ndim - 1) + (fft_length,))
    squares = jnp.broadcast_to(jnp.square(weights)[None, :], frames.shape[-2:])
    # least squares divides by the sum of squared windows, which is 0 where no window reaches
    total = overlap_add(squares, sequence_stride)
    total = jnp.where(total > 1e-10, total, 1)
    y = overlap_add(frames * row, sequence_stride)
    y = y / jnp.reshape(total, (1,) * (y.ndim - 1) + total.shape)
    start = fft_length // 2 if center else 0
    if length is not None:
        return y[..., start : start + length]
    return y[..., start : y.shape[-1] - start]


def _check_stride(name: str, stride: Any) -> None:
    if not isinstance(stride, int) or stride <= 0:
        raise ValueError(
            f"{name}: sequence_stride: expected a positive integer, received {stride!r}. Give the "
            "distance of two frames in steps, 1 or more."
        )


def _complex(name: str, x: Sequence[Any]) -> jax.Array:
    if not isinstance(x, tuple | list) or len(x) != 2:
        raise ValueError(
            f"{name}: expected a pair of arrays, real and imaginary parts, received "
            f"{type(x).__name__}. For a real signal x write (x, jnp.zeros_like(x))."
        )
    real, imaginary = map(jnp.asarray, x)
    floating = all(jnp.issubdtype(part.dtype, jnp.floating) for part in (real, imaginary))
    if real.shape != imaginary.shape or not floating:
        raise ValueError(
            f"{name}: expected two arrays of floating point numbers of one shape, received "
            f"{real.dtype}{real.shape} and {imaginary.dtype}{imaginary.shape}. Convert both to "
            "float32."
        )
    return jax.lax.complex(real, imaginary)


def _parts(x: jax.Array) -> Pair:
    return jnp.real(x), jnp.imag(x)
