"""Layers that combine several tensors into one, and the same as functions."""
