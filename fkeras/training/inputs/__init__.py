"""Checks the arguments of `fit`, `evaluate` and `predict`, and converts them to feeds."""
