"""Pooling over windows, to a given output size, and over all steps."""
