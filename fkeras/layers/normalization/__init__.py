"""Normalization over batches, layers, groups, vectors and data sets; spectral normalization."""
