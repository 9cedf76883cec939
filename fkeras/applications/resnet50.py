"""ResNet-50: a namespace of Keras."""

from fkeras.applications.resnet import ResNet50, decode_predictions, preprocess_input

__all__ = ("ResNet50", "decode_predictions", "preprocess_input")
