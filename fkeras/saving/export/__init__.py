"""Models and training steps as programs that JAX alone runs."""
