"""ONNX files: models as graphs of ONNX operators, written call by call."""

from fkeras.saving.onnx.exporting import write_model as write_model
