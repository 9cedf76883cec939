"""Behaviour of Keras that depends on the version and is not in the file."""
