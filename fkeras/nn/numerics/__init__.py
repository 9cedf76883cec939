"""Numerics that JAX leaves out: gradients at edges, valid indices, wide dtypes, positions of axes."""
