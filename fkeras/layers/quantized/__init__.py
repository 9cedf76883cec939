"""Layers with quantized weights, and layers with float8 products."""
