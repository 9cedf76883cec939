"""Parts that architectures share: arguments, weights, heads, docstrings, image preprocessing, classes."""
