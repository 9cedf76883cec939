"""Converts configurations of Keras 1 and 2 to the form of Keras 3."""
