"""Graphs of ONNX nodes: writing, simplifying, and the protobuf form."""
