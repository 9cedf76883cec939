"""Numerics missing in JAX: gradients at edges, valid indices, wide dtypes, positions of axes."""
