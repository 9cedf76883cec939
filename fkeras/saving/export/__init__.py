"""Exports models and training steps as programs that need only JAX to run."""
