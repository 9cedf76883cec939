"""JAX's operations as ONNX nodes: one rule for each operation."""
