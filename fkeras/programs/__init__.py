"""JAX programs (jaxprs): what the primitives are, and the walk through equations."""
