"""Immutable values that the engine computes with: shapes, structures, frozen containers, arrays, keys."""
