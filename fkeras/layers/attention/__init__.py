"""Attention: dot-product and additive scores, multi-head and grouped-query attention."""
