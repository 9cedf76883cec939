"""Sounds as Wav2Vec2 expects them: samples with mean 0 and variance 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from fkeras.authoring.engine import describe_value
from fkeras.engine import FKerasError
from fkeras.nn.numerics.array_types import Numbers
from fkeras.pretrained.media.sounds import check_rate, refuse_unknown, rows_of

# added to the variance
_EPSILON = 1e-7
_IGNORED = ("feature_extractor_type", "processor_class", "padding_side", "feature_size")


@dataclass(frozen=True)
class WaveProcessor:
    """Normalizes sounds for Wav2Vec2, and pads them at the end to one length.

    Args:
        sampling_rate: samples of a sound per second.
        normalize: whether each sound gets mean 0 and variance 1.
        padding: value of the samples after the end of a sound.
        masks: whether the model was trained with a mask of the padding. Models without a mask read the padding, as in
            training; with a mask all sounds of a call must have one length.

    Raises:
        FKerasError: where the sampling rate is not a positive integer, or another value has another type.

    Example:
        >>> import numpy as np
        >>> WaveProcessor()([np.ones(3, "float32"), np.array([1.0, 3.0])], 16000)
        array([[ 0.,  0.,  0.],
               [-1.,  1.,  0.]], dtype=float32)
    """

    sampling_rate: int = 16000
    normalize: bool = True
    padding: float = 0.0
    masks: bool = False

    def __post_init__(self) -> None:
        kinds = {"normalize": bool, "masks": bool, "padding": int | float, "sampling_rate": int}
        for name, kind in kinds.items():
            value = getattr(self, name)
            is_right = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
            if not is_right or (name == "sampling_rate" and value < 1):
                raise FKerasError(
                    f"WaveProcessor: {name}: expected a value such as {getattr(type(self), name)}, received "
                    f"{describe_value(value)}."
                )

    @classmethod
    def read(cls, mapping: Mapping[str, Any]) -> Self:
        """Returns the processor that a `preprocessor_config.json` describes.

        Args:
            mapping: content of the file.

        Raises:
            FKerasError: for another class than Wav2Vec2FeatureExtractor, and for unknown keys.

        Example:
            >>> WaveProcessor.read({"feature_extractor_type": "Wav2Vec2FeatureExtractor"}).normalize
            True
        """
        rest = dict(mapping) if isinstance(mapping, Mapping) else {}
        name = rest.get("feature_extractor_type", "Wav2Vec2FeatureExtractor")
        if name != "Wav2Vec2FeatureExtractor" or rest.get("feature_size", 1) != 1 or not rest:
            raise FKerasError(
                "preprocessor_config.json: expected the feature_extractor_type Wav2Vec2FeatureExtractor with "
                f"feature_size 1, received {describe_value(mapping)}. Build a WaveProcessor with the arguments of "
                "the file."
            )
        processor = cls(
            rest.pop("sampling_rate", 16000),
            rest.pop("do_normalize", True),
            rest.pop("padding_value", 0.0),
            rest.pop("return_attention_mask", False),
        )
        refuse_unknown(rest, _IGNORED, "samples")
        return processor

    def __call__(self, sounds: Numbers | Sequence[Numbers], sampling_rate: int) -> np.ndarray:
        """Returns the sounds (b, t).

        Args:
            sounds: numbers, of shape (t,) or (b, t), or a list of sounds (t,).
            sampling_rate: samples of the sounds per second.

        Raises:
            FKerasError: for another sampling rate than that of the processor, sounds without samples, sounds with
                several channels, integers, NaN, and sounds of several lengths where the model needs a mask.

        Example:
            >>> WaveProcessor()([[0.5, -0.5]], 16000).shape
            (1, 2)
        """
        check_rate("WaveProcessor", self.sampling_rate, sampling_rate)
        rows = rows_of("WaveProcessor", sounds)
        lengths = {len(row) for row in rows}
        if self.masks and len(lengths) > 1:
            raise FKerasError(
                f"WaveProcessor: expected sounds of one length, since the model was trained with a mask of the "
                f"padding, received lengths from {min(lengths)} to {max(lengths)}. Call the model for each length."
            )
        batch = np.full((len(rows), max(lengths, default=0)), self.padding, np.float32)
        for row, target in zip(rows, batch, strict=True):
            sound = row.astype(np.float32)
            if self.normalize:
                sound = (sound - sound.mean()) / np.sqrt(sound.var() + _EPSILON)
            target[: len(row)] = sound
        return batch
