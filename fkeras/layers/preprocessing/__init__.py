"""Layers that prepare data: categories, bins, numbers, sounds, and chains of such layers."""

from fkeras.layers.preprocessing.category_encoding import CategoryEncoding
from fkeras.layers.preprocessing.discretization import Discretization
from fkeras.layers.preprocessing.pipeline import Pipeline
from fkeras.layers.preprocessing.rescaling import Rescaling
from fkeras.layers.preprocessing.spectrogram import MelSpectrogram, STFTSpectrogram

__all__ = (
    "CategoryEncoding",
    "Discretization",
    "MelSpectrogram",
    "Pipeline",
    "Rescaling",
    "STFTSpectrogram",
)
