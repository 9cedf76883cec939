"""Layers that look up or hash integers and texts."""

from fkeras.layers.lookup.hashed_crossing import HashedCrossing
from fkeras.layers.lookup.hashing import Hashing
from fkeras.layers.lookup.integer_lookup import IntegerLookup
from fkeras.layers.lookup.string_lookup import StringLookup
from fkeras.layers.lookup.text_vectorization import TextVectorization

__all__ = (
    "HashedCrossing",
    "Hashing",
    "IntegerLookup",
    "StringLookup",
    "TextVectorization",
)
