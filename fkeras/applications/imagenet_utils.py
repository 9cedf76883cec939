"""Preprocessing of images in three modes, and class names: Keras's namespace of shared functions."""

from fkeras.applications.building.imagenet import decode_predictions, preprocess_input

__all__ = ("decode_predictions", "preprocess_input")
