"""The layers, one family a file."""

from fkeras.engine.config import deserialize, serialize
from fkeras.engine.input import Input, InputLayer
from fkeras.engine.layer import Layer

__all__ = ("Input", "InputLayer", "Layer", "deserialize", "serialize")
