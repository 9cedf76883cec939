"""Pooling over windows, to a given size, over all cells."""
