"""Helpers shared by several layer families."""
