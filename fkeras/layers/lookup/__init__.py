"""Layers that look up or hash integers and strings."""
