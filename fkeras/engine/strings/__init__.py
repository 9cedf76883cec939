"""Strings in models: layers on the host, before and after the network of numbers."""
