"""Weights in files: paths, sources, and models filled from them."""
