"""Layers as pytrees: leaves, static structure, weights by path and weights as lists."""
