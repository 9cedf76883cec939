"""Optimizers for groups of weights, selected by patterns of weight paths."""
