"""Layers as pytrees: leaves, static structure, weights by path, lists of weights."""
