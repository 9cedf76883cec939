"""Graphs in the configurations of legacy files."""
