"""Activation functions as layers: any function by name, and layers with settings or weights."""
