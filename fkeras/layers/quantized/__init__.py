"""Layers whose weights are small integers, or whose products are those of short floats."""

from fkeras.layers.quantized.dense import QuantizedDense
from fkeras.layers.quantized.embedding import QuantizedEmbedding
from fkeras.layers.quantized.float8 import Float8Dense

__all__ = (
    "Float8Dense",
    "QuantizedDense",
    "QuantizedEmbedding",
)
