"""JAX programs (jaxprs): a table of the primitives, and the walk through equations."""
