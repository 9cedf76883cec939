"""Symbolic tensors: inputs, operators and functions of arrays as layers."""
