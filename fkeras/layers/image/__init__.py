"""Layers of images: preprocessing and augmentation, one family a file."""
