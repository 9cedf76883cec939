"""Layers with weights of small integers, and products of float8 numbers."""
