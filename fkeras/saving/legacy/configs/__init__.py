"""Configurations of Keras 1 and 2 converted to the form of Keras 3."""
