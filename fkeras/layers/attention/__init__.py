"""Attention: one query's weighted mean of values, without heads, with heads, with shared heads."""

from fkeras.layers.attention.additive import AdditiveAttention
from fkeras.layers.attention.attention import Attention
from fkeras.layers.attention.grouped_query import GroupQueryAttention
from fkeras.layers.attention.multi_head import MultiHeadAttention
from fkeras.nn.attention import dot_product_attention

__all__ = (
    "AdditiveAttention",
    "Attention",
    "GroupQueryAttention",
    "MultiHeadAttention",
    "dot_product_attention",
)
