"""Rows of the layer table: spectrograms."""

from fkeras import layers
from tests.cases import Case

CASES = (
    Case(layers.STFTSpectrogram("magnitude", 4), ((2, 9, 2),)),
    Case(
        layers.STFTSpectrogram("stft", 4, 3, 8, "hamming", True, "spectrum", "same", True),
        ((2, 9, 2),),
    ),
    Case(
        layers.STFTSpectrogram("psd", 4, 2, window=None, data_format="channels_first"),
        ((2, 2, 9),),
    ),
    Case(layers.STFTSpectrogram("real", 4), ((2, 9, 1),)),
    Case(
        layers.MelSpectrogram(16, 8, 12, num_mel_bins=3, sampling_rate=800, top_db=200.0),
        ((2, 40),),
        tolerance=1e-3,
    ),
    Case(
        layers.MelSpectrogram(16, 8, num_mel_bins=3, sampling_rate=800, power_to_db=False),
        ((2, 40),),
        tolerance=1e-4,
    ),
)
