"""Programs of layers, traced by JAX on inputs of unknown sizes."""
