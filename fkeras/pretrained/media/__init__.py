"""Inputs of models from images and sounds."""
