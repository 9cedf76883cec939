"""Layers that wrap models of other libraries: JAX functions, Flax modules."""
