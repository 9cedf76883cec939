"""Rows of layers with an ONNX operator of their own; JAX traces all other layers."""
