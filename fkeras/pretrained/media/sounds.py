"""Sounds as Whisper expects them: logarithms of the power in bands of the mel scale."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.authoring.engine import describe_value
from fkeras.engine import FKerasError
from fkeras.nn.numerics.array_types import Numbers
from fkeras.nn.signal import stft

_IGNORED = frozenset(
    [
        "feature_extractor_type",
        "processor_class",
        "n_samples",
        "nb_max_frames",
        "padding_side",
        "return_attention_mask",
        "mel_filters",
    ]
)
# resource limit of the samples of a sound, and of the numbers of the filters
_LARGEST = 1 << 26
# the bands end here for every sampling rate
_HIGHEST = 8000.0


def refuse_unknown(entries: Mapping[str, Any], ignored: Collection[str], results: str) -> None:
    """Raises FKerasError for an entry of preprocessor_config.json that is neither empty nor ignored.

    Args:
        results: name of the results of the processor, for the message.
    """
    unknown = [key for key, value in entries.items() if value and key not in ignored]
    if unknown:
        raise FKerasError(
            f"preprocessor_config.json: unknown key {unknown[0]!r} with the value "
            f"{describe_value(entries[unknown[0]])}. The step is not implemented: remove the key if "
            f"the {results} do not depend on it."
        )


@dataclass(frozen=True)
class SoundProcessor:
    """Computes the features of sounds that Whisper was trained on.

    Args:
        bands: number of bands of the mel scale.
        seconds: length to which every sound is padded.
        sampling_rate: samples of a sound per second.
        window: samples of a frame.
        step: samples between adjacent frames.
        padding: value of the samples after the end of a sound.

    Raises:
        FKerasError: where a size is not a positive integer, or too large.

    Example:
        >>> import numpy as np
        >>> process = SoundProcessor(bands=4, seconds=1)
        >>> process(np.zeros(8000, "float32"), 16000).shape
        (1, 100, 4)

    References:
        Radford et al., Robust speech recognition via large-scale weak supervision (2022),
        https://arxiv.org/abs/2212.04356
    """

    bands: int = 80
    seconds: int = 30
    sampling_rate: int = 16000
    window: int = 400
    step: int = 160
    padding: float = 0.0

    def __post_init__(self) -> None:
        for name in ("bands", "seconds", "sampling_rate", "window", "step"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise FKerasError(
                    f"SoundProcessor: {name}: expected a positive integer, received "
                    f"{describe_value(value)}. Whisper has {name}={getattr(type(self), name)}."
                )
        if isinstance(self.padding, bool) or not isinstance(self.padding, int | float):
            raise FKerasError(
                f"SoundProcessor: padding: expected a number, received {describe_value(self.padding)}. "
                "Whisper has padding=0.0."
            )
        if max(self.seconds * self.sampling_rate, self.bands * self.window) > _LARGEST:
            raise FKerasError(
                f"SoundProcessor: expected at most {_LARGEST} samples and numbers of the filters, "
                f"received seconds={self.seconds}, sampling_rate={self.sampling_rate}, "
                f"bands={self.bands}, window={self.window}. Give smaller sizes."
            )

    @classmethod
    def read(cls, mapping: Mapping[str, Any]) -> Self:
        """Returns the processor that a `preprocessor_config.json` describes.

        Args:
            mapping: content of the file.

        Raises:
            FKerasError: for another class than WhisperFeatureExtractor, and for unknown keys.

        Example:
            >>> kind = {"feature_extractor_type": "WhisperFeatureExtractor"}
            >>> SoundProcessor.read({**kind, "feature_size": 128}).bands
            128
        """
        if not isinstance(mapping, Mapping):
            raise FKerasError(
                "preprocessor_config.json: expected an object of JSON, received "
                f"{describe_value(mapping)}. Correct the file."
            )
        rest = dict(mapping)
        name = rest.get("feature_extractor_type")
        if name != "WhisperFeatureExtractor":
            raise FKerasError(
                "preprocessor_config.json: expected the feature_extractor_type "
                f"WhisperFeatureExtractor, received {describe_value(name)}. Build a SoundProcessor "
                "with the arguments of the file."
            )
        made = cls(
            rest.pop("feature_size", 80),
            rest.pop("chunk_length", 30),
            rest.pop("sampling_rate", 16000),
            rest.pop("n_fft", 400),
            rest.pop("hop_length", 160),
            rest.pop("padding_value", 0.0),
        )
        refuse_unknown(rest, _IGNORED, "features")
        return made

    def __call__(self, sounds: Numbers | Sequence[Numbers], sampling_rate: int) -> jax.Array:
        """Returns the features (b, frames, bands) of sounds.

        Args:
            sounds: numbers between -1 and 1, of shape (t,) or (b, t), or a list of sounds (t,).
            sampling_rate: samples of the sounds per second.

        Raises:
            FKerasError: for another sampling rate than that of the processor, sounds that are too
                long, sounds without samples, sounds with several channels, integers, and NaN.

        Example:
            >>> SoundProcessor(bands=2, seconds=1, step=4000)([[0.5] * 100, [0.1]], 16000).shape
            (2, 4, 2)
        """
        check_rate("SoundProcessor", self.sampling_rate, sampling_rate)
        length = self.seconds * self.sampling_rate
        rows = rows_of("SoundProcessor", sounds)
        batch = np.full((len(rows), length), self.padding, np.float32)
        for i, row in enumerate(rows):
            if len(row) > length:
                raise FKerasError(
                    f"SoundProcessor: expected sounds of 1 to {length} samples ({self.seconds} "
                    f"seconds), received {len(row)} samples in sound {i}. Split a longer sound, and "
                    "transcribe the parts."
                )
            batch[i, : len(row)] = row
        return log_mel(jnp.asarray(batch), self.bands, self.sampling_rate, self.window, self.step)


def check_rate(name: str, expected: int, received: Any) -> None:
    """Raises FKerasError for another sampling rate than that of the processor `name`."""
    if received != expected:
        raise FKerasError(
            f"{name}: expected {expected} samples per second, received "
            f"sampling_rate={describe_value(received)}. Resample the sounds before, for example with "
            "scipy.signal.resample_poly."
        )


def rows_of(name: str, sounds: Any) -> list[np.ndarray]:
    """Returns the samples of each sound; `name` is the processor, for messages.

    Raises:
        FKerasError: for sounds without samples, sounds with several channels, integers, and NaN.
    """
    try:
        rows = np.asarray(sounds)
        rows = rows[None] if rows.ndim == 1 else rows
    except ValueError:  # rows of different lengths
        rows = [np.asarray(row) for row in sounds]
    for i, row in enumerate(rows):
        if row.ndim != 1 or not np.issubdtype(row.dtype, np.floating):
            raise FKerasError(
                f"{name}: expected sounds of floats with one channel, shape (t,), received "
                f"{row.dtype} of shape {row.shape}. For integers of 16 bits write x / 32768; for "
                "several channels x.mean(axis=-1)."
            )
        if not len(row) or not np.isfinite(row).all():
            problem = "NaN or infinity" if len(row) else "0 samples"
            raise FKerasError(
                f"{name}: expected finite numbers, at least one, received {problem} in sound {i}. Repair the "
                "recording."
            )
    return list(rows)


@functools.partial(jax.jit, static_argnums=(1, 2, 3, 4))
def log_mel(sounds: jax.Array, bands: int, sampling_rate: int, window: int, step: int) -> jax.Array:
    """Computes Whisper's features of sounds of one length.

    Args:
        sounds: (b, t).
        bands: number of bands.
        sampling_rate: samples per second.
        window: samples of a frame.
        step: samples between adjacent frames.

    Returns:
        (b, t // step, bands), between the maximum of the sound and 2 below.
    """
    real, imaginary = stft(sounds, window, step, window)
    power = jnp.square(real) + jnp.square(imaginary)
    mel = power[..., :-1, :] @ jnp.asarray(mel_filters(bands, window // 2 + 1, sampling_rate))
    logs = jnp.log10(jnp.maximum(mel, 1e-10))
    return (jnp.maximum(logs, jnp.max(logs, (-2, -1), keepdims=True) - 8) + 4) / 4


def mel_filters(bands: int, bins: int, sampling_rate: int) -> np.ndarray:
    """Returns weights (bins, bands) of triangles of area 1 with equal distances on Slaney's scale.

    The scale is linear below 1,000 hertz and logarithmic above. (`layers.MelSpectrogram` has another
    scale and triangles of height 1.)
    """
    per_mel, step = 200 / 3, math.log(6.4) / 27
    highest = 15 + math.log(_HIGHEST / 1000) / step
    mels = np.linspace(0, highest, bands + 2)
    edges = np.where(mels < 15, per_mel * mels, 1000 * np.exp(step * (mels - 15)))
    hertz = np.linspace(0, sampling_rate // 2, bins)[:, None]
    low, center, high = edges[:-2], edges[1:-1], edges[2:]
    triangles = np.minimum((hertz - low) / (center - low), (high - hertz) / (high - center))
    return (np.maximum(triangles, 0) * 2 / (high - low)).astype(np.float32)
