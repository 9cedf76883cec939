"""Transforms that record the calls of a graph again: surgery, cuts, edits and probes."""
