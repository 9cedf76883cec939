"""Weights in files: paths in the file, readers of all formats, and models filled with arrays."""
