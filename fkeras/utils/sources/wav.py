"""Sounds in WAV files: reading, and another sampling rate."""

from __future__ import annotations

import math
import os
import struct

import numpy as np

# a filter of this many zero crossings on each side
_CROSSINGS = 10
_BETA = 5.0
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE


def read_wav(path: str) -> tuple[np.ndarray, int]:
    """Reads a WAV file of integers (8, 16, 24, 32 bits) or floats.

    Args:
        path: path of the file.

    Returns:
        `(samples, rate)`: float32 of shape (t, channels) from -1 to 1, and samples per second.

    Raises:
        ValueError: for a damaged file, and for compressed sounds; the message is the problem.
    """
    with open(path, "rb") as file:
        start = file.read(12)
        if len(start) < 12 or start[:4] != b"RIFF" or start[8:] != b"WAVE":
            raise ValueError(f"a file that begins with {start[:12]!r}")
        size, form = os.fstat(file.fileno()).st_size, None
        while True:
            head = file.read(8)
            if len(head) < 8:
                raise ValueError("a file without samples")
            name, length = struct.unpack("<4sI", head)
            # programs that stream write a length of 0 or the largest integer
            left = size - file.tell()
            if name == b"data":
                if form is None:
                    raise ValueError("samples without a format before them")
                if length > left and length < 0xFFFFFFFF - 64:
                    raise ValueError(f"{left} bytes of samples, where the file declares {length}")
                return _samples(file.read(min(length, left)), *form[:3]), form[3]
            if length > left:
                raise ValueError("a file that is cut off")
            if name == b"fmt ":
                form = _format(file.read(length))
                file.seek(length % 2, os.SEEK_CUR)
            else:
                file.seek(length + length % 2, os.SEEK_CUR)


def _format(chunk: bytes) -> tuple[int, int, int, int]:
    """Returns coding, channels, bits and rate."""
    if len(chunk) < 16:
        raise ValueError("a damaged format")
    coding, channels, rate, _, block, bits = struct.unpack("<HHIIHH", chunk[:16])
    if coding == _EXTENSIBLE and len(chunk) >= 26:
        (coding,) = struct.unpack("<H", chunk[24:26])
    accepted = {_PCM: (8, 16, 24, 32), _FLOAT: (32, 64)}.get(coding, ())
    if bits not in accepted or channels < 1 or rate < 1 or block != channels * bits // 8:
        raise ValueError(
            f"samples of coding {coding} with {bits} bits in {channels} channels at {rate} Hz; "
            "integers of 8, 16, 24 or 32 bits and floats are read"
        )
    return coding, channels, bits, rate


def _samples(data: bytes, coding: int, channels: int, bits: int) -> np.ndarray:
    width = bits // 8
    data = data[: len(data) // (width * channels) * width * channels]
    if coding == _FLOAT:
        values = np.frombuffer(data, f"<f{width}").astype("float32")
    elif bits == 8:  # the only unsigned form
        values = (np.frombuffer(data, "u1").astype("float32") - 128) / 128
    elif bits == 24:
        parts = np.frombuffer(data, "u1").reshape(-1, 3)
        wide = np.zeros((len(parts), 4), "u1")
        wide[:, 1:] = parts  # the upper bytes of 32 bits, which carry the sign
        values = wide.view("<i4")[:, 0].astype("float32") / 2**31
    else:
        values = np.frombuffer(data, f"<i{width}").astype("float32") / 2 ** (bits - 1)
    return values.reshape(-1, channels)


def resample(samples: np.ndarray, old: int, new: int) -> np.ndarray:
    """Changes the sampling rate by a windowed sinc filter, which removes frequencies above half
    the lower rate.

    Args:
        samples: array of shape (t, channels).
        old: the rate of `samples` in samples per second.
        new: the rate of the result.

    Returns:
        An array of shape (ceil(t * new / old), channels), float32.

    Example:
        >>> resample(np.ones((80, 1)), 4, 2)[15:17].round(2).ravel()
        array([1., 1.], dtype=float32)
    """
    if old == new:
        return samples
    common = math.gcd(old, new)
    up, down = new // common, old // common
    cutoff = 1 / max(up, down)
    half = _CROSSINGS * max(up, down)
    # the filter at the rate old * up; `up` restores the mean that the inserted zeros reduce
    taps = np.sinc(cutoff * np.arange(-half, half + 1)) * np.kaiser(2 * half + 1, _BETA)
    taps *= up / taps.sum()
    count = -(-len(samples) * up // down)
    places = np.arange(count) * down + half
    # only every `up`-th tap meets a sample, the others meet the zeros between samples
    width = -(-len(taps) // up)
    padded = np.pad(taps, (0, width * up - len(taps))).reshape(width, up).T
    sources = (places // up)[:, None] - np.arange(width)
    inside = (sources >= 0) & (sources < len(samples))
    weights = np.where(inside, padded[places % up], 0)
    chosen = samples[sources.clip(0, max(len(samples) - 1, 0))]
    return np.einsum("tk,tkc->tc", weights, chosen).astype("float32")
