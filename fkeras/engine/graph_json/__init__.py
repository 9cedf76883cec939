"""Graphs as JSON data, in the form that Keras 3 writes functional models in."""
