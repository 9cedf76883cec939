"""Layers that merge several tensors into one, and the corresponding functions."""
