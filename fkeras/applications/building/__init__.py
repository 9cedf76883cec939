"""Parts that architectures share: arguments, weights, heads, docstrings, image preprocessing, classes.

The argument `x` of the parts is a batch of images or features (b, h, w, c).
"""
