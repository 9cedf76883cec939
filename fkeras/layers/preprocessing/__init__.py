"""Layers that prepare data: categories, bins, hashes, vocabularies, texts, numbers, sounds."""

from fkeras.layers.preprocessing.category_encoding import CategoryEncoding
from fkeras.layers.preprocessing.discretization import Discretization
from fkeras.layers.preprocessing.hashed_crossing import HashedCrossing
from fkeras.layers.preprocessing.hashing import Hashing
from fkeras.layers.preprocessing.integer_lookup import IntegerLookup
from fkeras.layers.preprocessing.pipeline import Pipeline
from fkeras.layers.preprocessing.rescaling import Rescaling
from fkeras.layers.preprocessing.spectrogram import MelSpectrogram, STFTSpectrogram
from fkeras.layers.preprocessing.string_lookup import StringLookup
from fkeras.layers.preprocessing.text_vectorization import TextVectorization

__all__ = (
    "CategoryEncoding",
    "Discretization",
    "HashedCrossing",
    "Hashing",
    "IntegerLookup",
    "MelSpectrogram",
    "Pipeline",
    "Rescaling",
    "STFTSpectrogram",
    "StringLookup",
    "TextVectorization",
)
