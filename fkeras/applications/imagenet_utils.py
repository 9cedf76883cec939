"""Preprocessing of images in three modes, and class names of predictions: a namespace of Keras."""

from fkeras.applications.building.imagenet import decode_predictions, preprocess_input

__all__ = ("decode_predictions", "preprocess_input")
