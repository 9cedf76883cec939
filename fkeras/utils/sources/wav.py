"""Reading of WAV files, and resampling of sounds."""

from __future__ import annotations

import math
import os
import struct

import numpy as np

# The resampling filter: a sinc with 10 zero crossings on each side, in a Kaiser window. SciPy's
# `resample_poly` has the same defaults.
_CROSSINGS = 10
_BETA = 5.0
# format codes of WAV files
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE


def read_wav(path: str) -> tuple[np.ndarray, int]:
    """Reads a WAV file of integers (8, 16, 24, 32 bits) or floats.

    Returns:
        `(samples, rate)`: float32 of shape (t, channels) from -1 to 1, and samples per second.
    """
    with open(path, "rb") as file:
        signature = file.read(12)
        if len(signature) < 12 or signature[:4] != b"RIFF" or signature[8:] != b"WAVE":
            raise ValueError(f"a file that begins with {signature[:12]!r}")
        file_size, sample_format = os.fstat(file.fileno()).st_size, None
        # a file is a sequence of chunks: name, length in bytes, content
        while True:
            chunk_header = file.read(8)
            if len(chunk_header) < 8:
                raise ValueError("a file without samples")
            name, length = struct.unpack("<4sI", chunk_header)
            remaining = file_size - file.tell()
            if name == b"data":
                if sample_format is None:
                    raise ValueError("samples without a format before them")
                # programs that stream a sound do not know its length and declare the largest integer
                if length > remaining and length < 0xFFFFFFFF - 64:
                    raise ValueError(
                        f"{remaining} bytes of samples, although the file declares {length}"
                    )
                samples = _decode_samples(file.read(min(length, remaining)), *sample_format[:3])
                return samples, sample_format[3]
            if length > remaining:
                raise ValueError("a truncated file")
            # a content of odd length is followed by one byte of padding
            if name == b"fmt ":
                sample_format = _parse_format(file.read(length))
                file.seek(length % 2, os.SEEK_CUR)
            else:
                file.seek(length + length % 2, os.SEEK_CUR)


def _parse_format(chunk: bytes) -> tuple[int, int, int, int]:
    """Returns format code, number of channels, bits per sample and sampling rate."""
    if len(chunk) < 16:
        raise ValueError("a damaged format chunk")
    code, channels, rate, _, block, bits = struct.unpack("<HHIIHH", chunk[:16])
    if code == _EXTENSIBLE and len(chunk) >= 26:
        (code,) = struct.unpack("<H", chunk[24:26])
    accepted = {_PCM: (8, 16, 24, 32), _FLOAT: (32, 64)}.get(code, ())
    if bits not in accepted or channels < 1 or rate < 1 or block != channels * bits // 8:
        raise ValueError(
            f"samples of format code {code} with {bits} bits in {channels} channels at {rate} Hz; "
            "supported are integers of 8, 16, 24 or 32 bits, and floats of 32 or 64 bits"
        )
    return code, channels, bits, rate


def _decode_samples(data: bytes, code: int, channels: int, bits: int) -> np.ndarray:
    width = bits // 8
    data = data[: len(data) // (width * channels) * width * channels]
    if code == _FLOAT:
        values = np.frombuffer(data, f"<f{width}").astype("float32")
    elif bits == 8:  # WAV stores 8-bit samples unsigned, and all wider samples signed
        values = (np.frombuffer(data, "u1").astype("float32") - 128) / 128
    elif bits == 24:
        sample_bytes = np.frombuffer(data, "u1").reshape(-1, 3)
        padded = np.zeros((len(sample_bytes), 4), "u1")
        padded[:, 1:] = sample_bytes  # the upper bytes of int32, so that the sign bit is in place
        values = padded.view("<i4")[:, 0].astype("float32") / 2**31
    else:
        values = np.frombuffer(data, f"<i{width}").astype("float32") / 2 ** (bits - 1)
    return values.reshape(-1, channels)


def resample(samples: np.ndarray, old: int, new: int) -> np.ndarray:
    """Resamples by a windowed sinc filter, which removes frequencies above half the lower rate.

    Args:
        samples: array of shape (t, channels).
        old: sampling rate of `samples`, in samples per second.

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
    # A polyphase filter: the sound is upsampled to the rate old * up by `up - 1` zeros after each
    # sample, filtered, and every `down`-th sample selected. The factor `up` restores the mean, which
    # the zeros reduce.
    taps = np.sinc(cutoff * np.arange(-half, half + 1)) * np.kaiser(2 * half + 1, _BETA)
    taps *= up / taps.sum()
    count = -(-len(samples) * up // down)
    positions = np.arange(count) * down + half
    # only every `up`-th tap is multiplied by a sample; all other taps are multiplied by zeros
    width = -(-len(taps) // up)
    padded = np.pad(taps, (0, width * up - len(taps))).reshape(width, up).T
    source_ids = (positions // up)[:, None] - np.arange(width)
    is_inside = (source_ids >= 0) & (source_ids < len(samples))
    weights = np.where(is_inside, padded[positions % up], 0)
    neighbors = samples[source_ids.clip(0, max(len(samples) - 1, 0))]
    return np.einsum("tk,tkc->tc", weights, neighbors).astype("float32")
