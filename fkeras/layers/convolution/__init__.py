"""Convolutions: plain, depthwise, separable, transposed."""
