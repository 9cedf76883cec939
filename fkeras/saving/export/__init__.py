"""Exports models and training steps as programs that run with JAX alone."""
