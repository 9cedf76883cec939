"""Geometric transforms of images: matrices, sampling between pixels, elastic distortion."""
