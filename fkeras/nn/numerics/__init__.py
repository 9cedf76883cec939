"""Numerics that JAX lacks: gradients at edges of domains, index checks, wide dtypes, axes."""
