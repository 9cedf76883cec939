"""ONNX files: models as graphs of ONNX operators, written call by call."""
