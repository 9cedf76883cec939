"""Normalization over batches, layers, groups, vectors, data sets; spectral normalization."""
